"""When a stream tells its lineage: as it starts, from time to time while it runs, and as it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from tailrace_common.sections.sink import Dataset
from tailrace_schemas.table import Table
from tailrace_spark.job.endings import reason
from tailrace_spark.job.progress import Progress

State = Literal["start", "running", "complete", "abort", "fail"]


@dataclass(frozen=True, slots=True)
class TableLineage:
    """A table that a stream follows: its topic, and the table itself where its cluster is named.

    `target` is where the sink writes it, with the columns of `shown`; None where nothing is written that could be read.
    `records` were read since the event before.
    """

    source: Table
    topic: Dataset
    cassandra: Dataset | None
    target: Dataset | None
    shown: Table | None
    records: int = 0


class Events(Protocol):
    """What sends events; see lineage_events.LineageEvents."""

    def emit(self, state: State, tables: Iterable[TableLineage], error: str | None = None) -> None:
        """An event of now."""

    def close(self) -> None:
        """Send what waits."""


class Lineage:
    """The events of one run of a stream; `events` sends them, and is closed at the run's end.

    `tables` are those that the stream follows, as far as they are announced. `clock` is monotonic, in seconds. An event
    of a run comes `seconds` after the one before, or sooner where a table is new.
    """

    def __init__(
        self,
        events: Events,
        tables: Callable[[], list[TableLineage]],
        clock: Callable[[], float],
        seconds: float,
    ) -> None:
        self._events = events
        self._tables = tables
        self._clock = clock
        self._seconds = seconds
        self._records: Counter[str] = Counter()
        self._told: set[str] = set()
        self._at = clock()

    @contextmanager
    def running(self) -> Iterator[None]:
        """The run: the last event says whether it ended in order, with an error, or because it was interrupted."""
        try:
            self._emit("start")
            yield
        except Exception as error:
            self._emit("fail", reason(error))
            raise
        except BaseException:
            self._emit("abort")
            raise
        else:
            self._emit("complete")
        finally:
            self._events.close()

    def wrote(self, progress: Progress) -> None:
        """A batch is in the sink."""
        self._records.update({table: done.records for table, done in progress.tables.items()})
        if not progress.tables.keys() <= self._told or self._clock() - self._at >= self._seconds:
            self._emit("running")

    def _emit(self, state: State, error: str | None = None) -> None:
        tables = [replace(lineage, records=self._records[str(lineage.source)]) for lineage in self._tables()]
        self._told = {str(lineage.source) for lineage in tables} | self._records.keys() | self._told
        self._records.clear()
        self._at = self._clock()
        self._events.emit(state, tables, error)
