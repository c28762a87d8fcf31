"""Lakes for tests: a store that can die or be overtaken; histories and tables that follow, as any reader sees them."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, cast

from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import Table
from tailrace_spark.sinks.changelog.sink import ChangeLogSink
from tailrace_spark.sinks.lake.current import LakeCurrent
from tailrace_spark.sinks.lake.history import HISTORY_LIMITS, HistoryLimits, LakeHistory, history_sink
from tailrace_spark.sinks.lake.state import StateTable
from tailrace_spark.sinks.lake.store import LakeStore
from tailrace_spark.sinks.lake.visible_rows import HIDDEN
from tailrace_spark.sinks.protocol import Sink, SweepingSink
from tests.support.history_records import change_records
from tests.support.letters import MemoryLetters
from tests.unit.spark.sinks.in_tasks import InTasks, LogInTasks
from tests.unit.spark.sinks.merging_contract import Row, by_repr


class Dying:
    """A store until so many steps have been made: each commit is two, before it and when it is done."""

    def __init__(self, store: LakeStore, steps: int, *, revives: bool = False) -> None:
        """With `revives` one step fails alone, as of a store that does not answer for a moment."""
        self._store = store
        self._left = steps
        self._revives = revives

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @contextmanager
    def dying(self) -> Iterator[None]:
        """Around whatever commits."""
        self._step()
        yield
        self._step()

    def make(self, *args: Any, **named: Any) -> None:
        with self.dying():
            self._store.make(*args, **named)

    def widen(self, *args: Any) -> None:
        with self.dying():
            self._store.widen(*args)

    def rewrite(self, *args: Any, **named: Any) -> None:
        with self.dying():
            self._store.rewrite(*args, **named)

    def commit_staged(self, *args: Any, **named: Any) -> None:
        with self.dying():
            self._store.commit_staged(*args, **named)

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        """A task has the store itself: it does not commit."""
        return pickle.loads, (pickle.dumps(self._store),)

    def _step(self) -> None:
        if self._left == 0:
            self._left -= self._revives
            raise ServiceError("the process is dead")
        self._left -= 1


class _Overtaken:
    def __init__(self, store: LakeStore, then: Callable[[], object], commit: str) -> None:
        self._store = store
        self._then = [then]
        self._commit = commit

    def __getattr__(self, name: str) -> Any:
        if name == self._commit and self._then:
            self._then.pop()()
        return getattr(self._store, name)


def overtaken(store: LakeStore, then: Callable[[], object], commit: str = "commit_staged") -> LakeStore:
    """A store before whose first commit of this kind something else is done."""
    return cast("LakeStore", _Overtaken(store, then, commit))


class Lake(ABC):
    """A path that a lake's sink writes below."""

    by_tasks: ClassVar = False

    def __init__(self, store: LakeStore) -> None:
        self.store = store
        self.letters = MemoryLetters()

    def opened(self, dies_after: int | None = None, *, revives: bool = False) -> LakeStore:
        """The store of another process, which writes; it fails after so many steps, or once."""
        store = self.another_store()
        return store if dies_after is None else cast("LakeStore", Dying(store, dies_after, revives=revives))

    @abstractmethod
    def another_store(self) -> LakeStore:
        """The store of another process."""

    @abstractmethod
    def rows_of(self, name: str) -> Any | None:
        """A pyarrow Table of all rows; None where there is no such table."""


class Histories(Lake):
    """Histories there."""

    exactly_once = True

    def __init__(self, store: LakeStore, names: Sequence[str] = (), limits: HistoryLimits = HISTORY_LIMITS) -> None:
        """`names` are the tables that a reader looks at, where they are there; none: all of them."""
        super().__init__(store)
        self._names = names
        self._limits = limits

    def open(self, dies_after: int | None = None, *, revives: bool = False) -> Sink:
        history = LakeHistory(self.opened(dies_after, revives=revives), self._limits, self.letters)
        return LogInTasks(history_sink(history)) if self.by_tasks else ChangeLogSink(history)

    def rows(self, name: str) -> Any:
        """All rows in the order of their places; None where there is no such table."""
        found = self.rows_of(name)
        places = [(column, "ascending") for column in ("topic", "partition", "offset")]
        return None if found is None else found.sort_by(places)

    @abstractmethod
    def days(self, name: str) -> set[str]:
        """A table's partitions."""

    def records(self) -> Sequence[Mapping[str, Any]]:
        """No name of a directory tells for certain whose changes a history has; it says that itself."""
        found = [(self.store.open(name), self.rows(name)) for name in self._names or self.store.names()]
        whose = [(table.says.removeprefix("Changes of "), rows) for table, rows in found if table is not None]
        return [record for table, rows in whose for record in change_records(table, rows)]


class FollowedLake(Lake):
    """Tables there that follow."""

    def __init__(self, store: LakeStore, buckets: int, **options: Any) -> None:
        """With more options of LakeCurrent."""
        super().__init__(store)
        self._buckets = buckets
        self._options = options

    def open(
        self,
        clock: Callable[[], float] | None = None,
        ring_delay: float = 0.0,
        *,
        dies_after: int | None = None,
        revives: bool = False,
    ) -> SweepingSink:
        store, time = self.opened(dies_after, revives=revives), clock or (lambda: 0)
        sink = LakeCurrent(
            store, self._buckets, ring_delay=ring_delay, clock=time, letters=self.letters, **self._options
        )
        return InTasks(sink) if self.by_tasks else sink

    def follows(self, of: Table) -> bool:
        """Whether a table follows a source table."""
        return bool(self._names(of))

    def name(self, of: Table) -> str:
        """The name of the table that follows a source table."""
        [name] = self._names(of)
        return name

    def _names(self, of: Table) -> list[str]:
        found = [name for name in self.store.names() if name.endswith("-state")]
        abouts = {name.removesuffix("-state"): StateTable(self.store.open(name)).entry() for name in found}
        return [name for name, entry in abouts.items() if entry is not None and entry.definition.id == of.id]

    def shown(self, of: Table) -> Any:
        """A pyarrow Table of what readers see of a source table."""
        found = self.rows_of(self.name(of))
        assert found is not None
        return found

    def rows(self, of: Table, *columns: str) -> list[Row]:
        found = self.shown(of)
        return by_repr(zip(*(found[column].to_pylist() for column in columns), strict=True))

    def columns(self, of: Table) -> list[str]:
        return [name for name in self.shown(of).schema.names if name not in HIDDEN]

    def everything(self) -> object:
        """By name the version and all rows."""
        found = {name: (self.version_of(name), self.rows_of(name)) for name in self.store.names()}
        return {
            name: (version, by_repr(tuple(row.items()) for row in rows.to_pylist()))
            for name, (version, rows) in found.items()
            if rows is not None
        }

    def kept(self) -> int:
        """How many states there are, of rows that are shown and of others."""
        states = [self.rows_of(name) for name in self.store.names() if name.endswith("-state")]
        return sum(bucket != -1 for rows in states if rows is not None for bucket in rows["bucket"].to_pylist())

    @abstractmethod
    def version_of(self, name: str) -> object:
        """What another commit of a table has not."""

    @abstractmethod
    def compact(self) -> None:
        """Put small files of all tables together, and forget what was."""

    @abstractmethod
    def histories(self) -> Histories:
        """Histories below the same root."""
