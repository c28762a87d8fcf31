"""What both sinks in a Cassandra cluster do alike: pieces, and what each definition needs."""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from math import inf
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from tailrace_schemas.errors import UnsupportedError
from tailrace_schemas.table import Table
from tailrace_schemas.table_json import table_to_json
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, Summary
from tailrace_spark.batch.task_batch import PartitionResult, TaskBatch
from tailrace_spark.sinks.cassandra.cluster import RefusedError
from tailrace_spark.sinks.cassandra.store import Store
from tailrace_spark.sinks.cassandra.task import CassandraTask, Opener
from tailrace_spark.sinks.letters import Letters
from tailrace_spark.sinks.protocol import Capabilities
from tailrace_spark.sinks.table_faults import is_of_table, reason_of

_Target = TypeVar("_Target")
_Item = TypeVar("_Item")

TargetName = tuple[str, str]
"""Keyspace and name of a table there."""

UNSUPPORTED_SECONDS: Final = 60.0
"""What a cluster could not hold is looked at again after so long: somebody may have changed it there."""

log = logging.getLogger("tailrace_spark")


class Targets(Generic[_Target]):
    """What writes the changes of each definition, made when it is first asked for."""

    def __init__(self, make: Callable[[Table], _Target], clock: Callable[[], float]) -> None:
        """`make` raises what is its table's (table_faults) where there can be none; its changes are set aside then."""
        self._make = make
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
                log.error("%s: its changes go to the dead letters, other tables go on: %s", table, target)
            entry = self._known[id(table)] = table, target, look_again
        if isinstance(entry[1], UnsupportedError):
            raise entry[1]
        return entry[1]

    def refused(self) -> dict[str, str]:
        """Why changes of some definitions go to the dead letters now, by `digest_of` these."""
        return {
            digest_of(table): str(target)
            for table, target, look_again in self._known.values()
            if isinstance(target, UnsupportedError) and self._clock() < look_again
        }

    def forget(self) -> None:
        """What the cluster has may have changed."""
        self._known.clear()


def digest_of(table: Table) -> str:
    """What names a definition in every process."""
    text = json.dumps(table_to_json(table), sort_keys=True)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def taken(
    items: Sequence[_Item], write: Callable[[Sequence[_Item]], None], refuse: Callable[[_Item, str], None]
) -> list[_Item]:
    """Those that the cluster takes: they are written in halves until it is known which ones it refuses, and why."""
    if not items:
        return []
    try:
        write(items)
    except BaseException as error:
        if not is_of_table(error):
            raise
        if len(items) == 1:
            refuse(items[0], f"Cassandra refuses it: {error if isinstance(error, RefusedError) else reason_of(error)}")
            return []
    else:
        return list(items)
    middle = len(items) // 2
    return taken(items[:middle], write, refuse) + taken(items[middle:], write, refuse)


class CassandraSink(ABC):
    """A sink that writes piece by piece: what a batch wrote before it failed is written again as it was."""

    _targets: Targets[Any]

    def __init__(self, store: Store, letters: Letters, opener: Opener | None = None) -> None:
        """With an `opener` tasks write too."""
        self._cluster = store
        self._letters = letters
        self._opener = opener
        self._refused: Mapping[str, str] = {}
        self._ids: dict[TargetName, UUID] = {}

    def reach(self) -> None:
        """Connect, and write nothing. Raises ServiceError where the cluster does not answer or refuses."""
        self._cluster.connect()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(tasks=None if self._opener is None else self)

    def write(self, pieces: Iterable[Piece]) -> Summary:
        """Write one micro-batch. Raises ServiceError where the cluster does not answer, or lacks the keyspace, and
        SettingsError where a table there is the source's own."""
        summary = Summary()
        try:
            for piece in pieces:
                letters = list(piece.dead_letters)
                summary += self._piece(piece, letters)
                self._letters.put(letters)
        except BaseException:
            self._forget()
            raise
        return summary

    def close(self) -> None:
        """Give the connections back."""
        self._cluster.close()

    def fence(self, stream: str) -> None:  # noqa: B027 - both sinks have nothing to wait for
        """As TaskSink says, of what SELECT returns: what a task still writes has the times of what is written."""

    def plan(self, batch: TaskBatch, definitions: Sequence[tuple[int, Table]]) -> CassandraTask:
        """As TaskSink says. Tables are made and widened here."""
        del batch
        if self._opener is None:
            raise ValueError("a sink without an opener has no tasks: capabilities.tasks says so")
        if definitions:
            self._forget()  # tasks do not see what these need: somebody may have dropped it
        for announced, table in definitions:
            with suppress(UnsupportedError):  # `Targets` has logged it, and tasks get it
                self._make_ready(announced, table)
        return CassandraTask(self._opener, self._targets.refused(), self._definitions())

    def commit(self, batch: TaskBatch, results: Sequence[PartitionResult]) -> Summary:
        """As TaskSink says: tasks have written all."""
        del batch
        return sum((result.summary for result in results), Summary())

    def begin(self, task: CassandraTask) -> None:
        """In a worker process: what the plan of the next task says."""
        self._refused = task.refused

    def look_again(self, changes: Sequence[Delivered]) -> None:
        """In a worker process: forget what is known of the cluster where it has other tables by now than those."""
        tables = {id(delivered.change.table): delivered.change.table for delivered in changes}.values()
        for name in {self._target_name(table) for table in tables}:
            if name in self._ids:
                identity = self._cluster.identity(*name)
                if identity is None or identity[0] != self._ids[name]:
                    self._forget()
                    return

    def _require_accepted(self, table: Table) -> None:
        """Raises UnsupportedError for a definition of which the plan says so."""
        if self._refused and (reason := self._refused.get(digest_of(table))) is not None:
            raise UnsupportedError(reason)

    def _make_ready(self, announced: int, table: Table) -> None:
        """Make what a definition needs, announced at this offset of `.schemas`; raises as `Targets.of`."""
        del announced
        self._targets.of(table)

    def _definitions(self) -> Mapping[str, tuple[int, str]]:
        """What workers have to know of tables beside the definition of each change, as CassandraTask has it."""
        return {}

    @abstractmethod
    def _piece(self, piece: Piece, letters: list[DeadLetter]) -> Summary:
        """Write a piece; `letters` has its dead letters, and gets those of changes that cannot be written."""

    @abstractmethod
    def _target_name(self, table: Table) -> TargetName:
        """Where the changes of a source's table are written."""

    def _forget(self) -> None:
        """What the cluster has may have changed."""
        self._targets.forget()
        self._ids.clear()
