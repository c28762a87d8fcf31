"""Delta stores for tests: tables in a directory or on S3, behind a store that can die."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import pytest
from deltalake import DeltaTable

from tailrace_common.settings_sink_delta import DeltaSinkSettings
from tailrace_schemas.errors import ServiceError
from tailrace_spark.sinks.change_log import ChangeLogSink
from tailrace_spark.sinks.delta_history import DEAD_LETTERS, DeltaHistory
from tailrace_spark.sinks.delta_records import change_records
from tailrace_spark.sinks.delta_store import DeltaStore
from tailrace_spark.sinks.protocol import Piece
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import PLAIN, Topic, deliver


class Dying(DeltaStore):
    """Another store until so many steps have been made: each commit is two, before it and when it is done."""

    def __init__(self, settings: DeltaSinkSettings, steps: int, *, revives: bool = False) -> None:
        """With `revives` one step fails alone, as of a store that does not answer for a moment."""
        super().__init__(settings)
        self._left = steps
        self._revives = revives

    @contextmanager
    def dying(self) -> Iterator[None]:
        """Around whatever commits."""
        self._step()
        yield
        self._step()

    def append(self, *args: Any, **named: Any) -> None:
        with self.dying():
            super().append(*args, **named)

    def _step(self) -> None:
        if self._left == 0:
            self._left -= self._revives
            raise ServiceError("the process is dead")
        self._left -= 1


class DeltaStored:
    """A path that a delta sink writes histories below, and its readers."""

    exactly_once = True

    def __init__(self, settings: DeltaSinkSettings, names: Sequence[str] = ("shop.plain", "shop.orders")) -> None:
        """`names` are the tables that a reader looks at, where they are there."""
        self.settings = settings
        self._names = names
        self.store = DeltaStore(settings)

    def open(self, dies_after: int | None = None, *, revives: bool = False) -> ChangeLogSink:
        store = self.store if dies_after is None else Dying(self.settings, dies_after, revives=revives)
        return ChangeLogSink(DeltaHistory(store))

    def table(self, name: str) -> DeltaTable | None:
        """As anybody else opens it."""
        stored = DeltaStore(self.settings).open(name)
        return None if stored is None else stored.delta

    def rows(self, name: str) -> Any:
        """A pyarrow Table of all rows, in the order of their places; None where there is no such table."""
        table = self.table(name)
        places = [(column, "ascending") for column in ("topic", "partition", "offset")]
        return None if table is None else table.to_pyarrow_table().sort_by(places)

    def records(self) -> Sequence[Mapping[str, Any]]:
        found = [(name, self.rows(name)) for name in self._names]
        return [record for name, rows in found if rows is not None for record in change_records(name, rows)]

    def dead_letters(self) -> Sequence[Mapping[str, Any]]:
        rows = self.rows(DEAD_LETTERS)
        return [] if rows is None else [{**row, "message": row["message"].hex()} for row in rows.to_pylist()]


def two_at_a_time(stored: DeltaStored) -> None:
    """Two processes have the same batch: whoever commits second fails; once more, and there is nothing left to do.

    First where the table is not there yet, then where it is.
    """
    topic, log = Topic(), Log(PLAIN)
    for number in range(2):
        piece = topic.piece(log.insert((0,), (), number, v="x"))

        def overtaken(piece: Piece = piece) -> Iterator[Piece]:
            yield piece
            deliver(stored, piece)

        with closing(stored.open()) as sink:
            with pytest.raises(ServiceError, match=r"another writer|already exists"):
                sink.write(overtaken())
            assert sink.write([piece]).rows == 0
    assert [record["offset"] for record in stored.records()] == [0, 1]
