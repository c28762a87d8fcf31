"""A store each table of which is opened once, so that all tasks of a process see it as it was then."""

from __future__ import annotations

from typing import Any

from tailrace_spark.sinks.lake.store import LakeStore, LakeTable


class OpenedTables:
    """A LakeStore that remembers what it opened."""

    def __init__(self, store: LakeStore) -> None:
        self._store = store
        self._tables: dict[str, LakeTable | None] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def open(self, name: str) -> LakeTable | None:
        """The table as it was when it was first asked for."""
        if name not in self._tables:
            self._tables[name] = self._store.open(name)
        return self._tables[name]
