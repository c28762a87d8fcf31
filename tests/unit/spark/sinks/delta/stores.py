"""Delta stores for tests: tables in a directory or on S3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from tailrace_schemas.table import Table
from tailrace_spark.sinks.delta.settings import DeltaSinkSettings
from tailrace_spark.sinks.delta.store import PATIENCE, DeltaStore
from tailrace_spark.sinks.lake.history import HISTORY_LIMITS, HistoryLimits
from tests import s3
from tests.unit.spark.sinks.lake.stores import FollowedLake, Histories, Lake


class DeltaLake(Lake):
    """A path that a delta sink writes below."""

    store: DeltaStore

    def another_store(self) -> DeltaStore:
        return self.store

    def rows_of(self, name: str) -> Any | None:
        opened = self.store.open(name)
        return None if opened is None else opened.delta.to_pyarrow_table()


class DeltaStored(DeltaLake, Histories):
    """Histories there."""

    def __init__(
        self,
        settings: DeltaSinkSettings,
        names: Sequence[str] = (),
        *,
        patience: Mapping[str, str] = PATIENCE,
        limits: HistoryLimits = HISTORY_LIMITS,
    ) -> None:
        super().__init__(DeltaStore(settings, patience), names, limits)

    def table(self, name: str) -> DeltaTable | None:
        """As anybody else opens it."""
        stored = self.store.open(name)
        return None if stored is None else stored.delta

    def days(self, name: str) -> set[str]:
        table = self.table(name)
        return set() if table is None else {str(part["day"]) for part in table.partitions()}


class DeltaInTasks(DeltaStored):
    """Histories that tasks write."""

    by_tasks = True


class FollowedDelta(DeltaLake, FollowedLake):
    """Tables there that follow."""

    def __init__(self, settings: DeltaSinkSettings, **options: Any) -> None:
        super().__init__(DeltaStore(settings), settings.buckets, **options)
        self.settings = settings

    def table(self, of: Table) -> DeltaTable:
        """As anybody else opens it."""
        stored = self.store.open(self.name(of))
        assert stored is not None
        return stored.delta

    def version_of(self, name: str) -> object:
        stored = self.store.open(name)
        return stored and stored.delta.version()

    def compact(self) -> None:
        for name in self.store.names():
            self.store.compact(name)

    def histories(self) -> DeltaStored:
        return DeltaStored(self.settings)


class DeltaCurrentInTasks(FollowedDelta):
    """Tables there that follow, written by tasks."""

    by_tasks = True


def section(root: Path, **more: object) -> DeltaSinkSettings:
    return DeltaSinkSettings.model_validate({"path": str(root), **more})


def section_on_s3(path: str, **more: str) -> DeltaSinkSettings:
    keys = {"endpoint": s3.endpoint(), "region": "us-east-1", "access_key": s3.ACCESS_KEY, "secret_key": s3.SECRET_KEY}
    return DeltaSinkSettings.model_validate({"path": path, **keys, **more})
