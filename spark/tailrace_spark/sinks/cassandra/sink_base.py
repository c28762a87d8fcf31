"""What both sinks in a Cassandra cluster do alike: pieces, letters written again, what each definition needs."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Final, Generic, TypeVar

from tailrace_schemas.errors import UnsupportedError
from tailrace_schemas.table import Table
from tailrace_spark.batch.dead_letters import accepted
from tailrace_spark.batch.delivery import DeadLetter, Piece, RecordId, Summary
from tailrace_spark.sinks.cassandra.dead_letters import CassandraDeadLetters
from tailrace_spark.sinks.cassandra.store import Store
from tailrace_spark.sinks.protocol import Capabilities
from tailrace_spark.sinks.table_faults import is_of_table, reason_of

_Target = TypeVar("_Target")

UNSUPPORTED_SECONDS: Final = 60.0
"""What a cluster could not hold is looked at again after so long: somebody may have changed it there."""

log = logging.getLogger("tailrace_spark")


class Targets(Generic[_Target]):
    """What writes the changes of each definition, made when it is first asked for."""

    def __init__(self, make: Callable[[Table], _Target], letters: str, clock: Callable[[], float]) -> None:
        """`make` raises what is its table's (table_faults) where there can be none; `letters` is where its changes go
        then."""
        self._make = make
        self._letters = letters
        self._clock = clock
        self._known: dict[int, tuple[Table, _Target | UnsupportedError, float]] = {}

    def of(self, table: Table) -> _Target:
        """That of a definition. Raises UnsupportedError, and what `make` raises besides."""
        entry = self._known.get(id(table))
        if entry is None or entry[0] is not table or self._clock() >= entry[2]:
            look_again = inf
            try:
                target: _Target | UnsupportedError = self._make(table)
            except BaseException as error:
                if not is_of_table(error):
                    raise
                target = error if isinstance(error, UnsupportedError) else UnsupportedError(reason_of(error))
                look_again = self._clock() + UNSUPPORTED_SECONDS
                log.error("%s: its changes go to %s, other tables go on: %s", table, self._letters, target)
            entry = self._known[id(table)] = table, target, look_again
        if isinstance(entry[1], UnsupportedError):
            raise entry[1]
        return entry[1]

    def forget(self) -> None:
        """What the cluster has may have changed."""
        self._known.clear()


class CassandraSink(ABC):
    """A sink that writes piece by piece: what a batch wrote before it failed is written again as it was."""

    def __init__(self, store: Store, letters: CassandraDeadLetters) -> None:
        self._cluster = store
        self._letters = letters

    def reach(self) -> None:
        """Connect, and write nothing. Raises ServiceError where the cluster does not answer or refuses."""
        self._cluster.connect()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(dead_letters=self)

    def write(self, pieces: Iterable[Piece]) -> Summary:
        """Write one micro-batch. Raises ServiceError where the cluster does not answer, or lacks the keyspace, and
        SettingsError where a table there is the source's own."""
        return self._write(pieces, [])

    def dead_letters(self, after: RecordId | None, limit: int) -> Sequence[DeadLetter]:
        return self._letters.list(after, limit)

    def replay(self, letters: Sequence[DeadLetter], pieces: Iterable[Piece]) -> Summary:
        """As DeadLetterSink says: the changes first, then the letters go.

        After a crash between the two they are written again, and leave what they left.
        """
        set_aside: list[DeadLetter] = []
        summary = self._write(pieces, set_aside)
        self._letters.remove(accepted(letters, set_aside))
        return summary

    def close(self) -> None:
        """Give the connections back."""
        self._cluster.close()

    def _write(self, pieces: Iterable[Piece], set_aside: list[DeadLetter]) -> Summary:
        summary = Summary()
        try:
            for piece in pieces:
                summary += self._piece(piece, set_aside)
        except BaseException:
            self._forget()
            self._letters.forget()
            raise
        return summary

    @abstractmethod
    def _piece(self, piece: Piece, set_aside: list[DeadLetter]) -> Summary:
        """Write a piece, and its letters; `set_aside` gets these, and those of changes that cannot be written."""

    @abstractmethod
    def _forget(self) -> None:
        """What the cluster has may have changed."""
