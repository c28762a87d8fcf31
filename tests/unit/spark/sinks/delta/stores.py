"""Delta stores for tests: tables in a directory or on S3, behind a store that can die."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from deltalake import DeltaTable

from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import Table
from tailrace_spark.sinks.changelog.sink import ChangeLogSink
from tailrace_spark.sinks.delta.settings import DeltaSinkSettings
from tailrace_spark.sinks.delta.store import PATIENCE, DeltaStore
from tailrace_spark.sinks.lake.current import LakeCurrent
from tailrace_spark.sinks.lake.history import HISTORY_LIMITS, HistoryLimits, LakeHistory, history_sink
from tailrace_spark.sinks.lake.state import WORTH_A_PART, StateTable
from tailrace_spark.sinks.lake.store import LakeStore, LakeTable
from tailrace_spark.sinks.lake.visible_rows import HIDDEN
from tailrace_spark.sinks.protocol import Sink, SweepingSink
from tests import s3
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


class DeltaLake:
    """A path that a delta sink writes below."""

    def __init__(self, settings: DeltaSinkSettings, patience: Mapping[str, str] = PATIENCE) -> None:
        self.settings = settings
        self.store = DeltaStore(settings, patience)
        self.letters = MemoryLetters()

    def opened(self, dies_after: int | None = None, *, revives: bool = False) -> LakeStore:
        """The store of another process, that writes."""
        store: LakeStore = self.store
        return store if dies_after is None else cast("LakeStore", Dying(store, dies_after, revives=revives))


class DeltaStored(DeltaLake):
    """Histories there."""

    exactly_once = True

    def __init__(
        self,
        settings: DeltaSinkSettings,
        names: Sequence[str] = (),
        *,
        patience: Mapping[str, str] = PATIENCE,
        limits: HistoryLimits = HISTORY_LIMITS,
    ) -> None:
        """`names` are the tables that a reader looks at, where they are there; none: all of them."""
        super().__init__(settings, patience)
        self._names = names
        self._limits = limits

    def open(self, dies_after: int | None = None, *, revives: bool = False) -> Sink:
        return ChangeLogSink(LakeHistory(self.opened(dies_after, revives=revives), self._limits, self.letters))

    def table(self, name: str) -> DeltaTable | None:
        """As anybody else opens it."""
        stored = DeltaStore(self.settings).open(name)
        return None if stored is None else stored.delta

    def rows(self, name: str) -> Any:
        """A pyarrow Table of all rows, in the order of their places; None where there is no such table."""
        table = self.table(name)
        places = [(column, "ascending") for column in ("topic", "partition", "offset")]
        return None if table is None else table.to_pyarrow_table().sort_by(places)

    def days(self, name: str) -> set[str]:
        table = self.table(name)
        return set() if table is None else {str(part["day"]) for part in table.partitions()}

    def records(self) -> Sequence[Mapping[str, Any]]:
        names = self._names or self.store.names()
        found = [(whose(self.store.open(name)), self.rows(name)) for name in names]
        return [record for table, rows in found if rows is not None for record in change_records(table, rows)]


class DeltaInTasks(DeltaStored):
    """Histories that tasks write."""

    def open(self, dies_after: int | None = None, *, revives: bool = False) -> Sink:
        return LogInTasks(history_sink(LakeHistory(self.opened(dies_after, revives=revives), letters=self.letters)))


def whose(history: LakeTable | None) -> str:
    """The source table whose changes a history says that it has; no name of a directory tells for certain."""
    return "" if history is None else history.says.removeprefix("Changes of ")


class Following:
    """Finds tables that follow, in whatever lake they are."""

    store: LakeStore

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


class FollowedDelta(DeltaLake, Following):
    """Tables there that follow."""

    store: DeltaStore

    def __init__(self, settings: DeltaSinkSettings, worth_a_part: int = WORTH_A_PART) -> None:
        super().__init__(settings)
        self._worth_a_part = worth_a_part

    def open(
        self,
        clock: Callable[[], float] | None = None,
        ring_delay: float = 0.0,
        *,
        dies_after: int | None = None,
        revives: bool = False,
    ) -> SweepingSink:
        store = self.opened(dies_after, revives=revives)
        return LakeCurrent(
            store,
            self.settings.buckets,
            ring_delay=ring_delay,
            worth_a_part=self._worth_a_part,
            clock=clock or (lambda: 0),
            letters=self.letters,
        )

    def table(self, of: Table) -> DeltaTable:
        """As anybody else opens it."""
        stored = self.store.open(self.name(of))
        assert stored is not None
        return stored.delta

    def rows(self, of: Table, *columns: str) -> list[Row]:
        found = self.table(of).to_pyarrow_table(columns=list(columns)).to_pydict()
        return by_repr(zip(*(found[column] for column in columns), strict=True))

    def columns(self, of: Table) -> list[str]:
        return [field.name for field in self.table(of).schema().fields if field.name not in HIDDEN]

    def everything(self) -> object:
        """By name the version and all rows."""
        found = {name: self.store.open(name) for name in self.store.names()}
        return {
            name: (one.delta.version(), by_repr(tuple(row.items()) for row in one.delta.to_pyarrow_table().to_pylist()))
            for name, one in found.items()
            if one is not None
        }

    def compact(self) -> None:
        for name in self.store.names():
            self.store.compact(name)

    def histories(self) -> DeltaStored:
        return DeltaStored(self.settings)


class DeltaCurrentInTasks(FollowedDelta):
    """Tables there that follow, written by tasks."""

    def open(
        self,
        clock: Callable[[], float] | None = None,
        ring_delay: float = 0.0,
        *,
        dies_after: int | None = None,
        revives: bool = False,
    ) -> SweepingSink:
        return InTasks(super().open(clock, ring_delay, dies_after=dies_after, revives=revives))


def section(root: Path, **more: object) -> DeltaSinkSettings:
    return DeltaSinkSettings.model_validate({"path": str(root), **more})


def section_on_s3(path: str, **more: str) -> DeltaSinkSettings:
    keys = {"endpoint": s3.endpoint(), "region": "us-east-1", "access_key": s3.ACCESS_KEY, "secret_key": s3.SECRET_KEY}
    return DeltaSinkSettings.model_validate({"path": path, **keys, **more})
