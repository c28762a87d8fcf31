"""Random programs of the oracle that go on while their tables are read into a sink."""

from __future__ import annotations

from typing import Final

from tailrace_schemas.table import Table
from tests.corpus.kinds import Kinds
from tests.integration.snapshot.following import Place
from tests.oracle.writing import Source, Writer
from tests.support.background import Background

KINDS: Final = Kinds(
    counters=False, times=False, sparing=True, expiries=False, alterations=False, long_keys=False, finite=True,
    lists=False,
)  # fmt: skip
"""What a snapshot and the log together tell whole (docs/snapshots.md): nothing is written at times of the past, whose
deletions would lose against the markers of rows without a cell, and no list's elements have to be known by their
places."""


class RandomWrites(Background):
    """The program of a seed in a keyspace of its own: its first statements at once, the others inside the `with`."""

    def __init__(self, place: Place, keyspace: str, seed: int, first: int, *, pause: float) -> None:
        super().__init__(self._write, pause)
        self._writer = Writer(Source(place.session, place.live), keyspace)
        self._script = self._writer.begin(seed, KINDS)
        for _ in range(first):
            self._write()

    @property
    def tables(self) -> list[Table]:
        """The program's, by name."""
        return sorted(self._writer.tables.values(), key=str)

    @property
    def count(self) -> int:
        """How many statements were executed, those that made the tables too."""
        return len(self._writer.lines)

    def _write(self) -> None:
        self._writer.execute(self._script.next())

    def __exit__(self, *_: object) -> None:
        self.end()
        self._writer.drop()
