"""What both sinks in a Cassandra cluster do alike: pieces, what each definition needs, and shares that executors write.

Executors write by each worker process's own connection, without DDL. Writes have the source's own write times, so
attempts beside each other, late ones and any order leave the same rows. What has no such time is the driver's alone:
tables and types, watermarks. A table that was dropped and made again there is another one, which late attempts must
not write: writers look before each piece.
"""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from math import inf
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from tailrace_schemas.cql.types import CqlType, quote_identifier, user_types_in
from tailrace_schemas.errors import ServiceError, UnsupportedError
from tailrace_schemas.formats import require_format
from tailrace_schemas.table import Table
from tailrace_schemas.table_json import table_to_json
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import CommitMessage, DeadLetter, Delivered, MicroBatch, Piece, Summary
from tailrace_spark.sinks.cassandra.cluster import CassandraStore, RefusedError
from tailrace_spark.sinks.cassandra.settings import CassandraTargetSettings, keyspace_name
from tailrace_spark.sinks.letters import LOGGED, Letters
from tailrace_spark.sinks.protocol import (
    BatchWrite,
    Capabilities,
    Definitions,
    HereOnlyError,
    Needed,
    here,
    nothing_needed,
)
from tailrace_spark.sinks.table_faults import in_halves, is_of_table, reason_of
from tailrace_spark.sinks.worker_cache import WorkerCache

FORMAT: Final = 1
"""What this version writes into each."""

_COMMENT: Final = "tailrace: format "
_TableWriter = TypeVar("_TableWriter")
_Item = TypeVar("_Item")

TargetName = tuple[str, str]
"""Keyspace and name of a table there."""

UNSUPPORTED_SECONDS: Final = 60.0
"""What a cluster could not hold is looked at again after so long: somebody may have changed it there."""

log = logging.getLogger("tailrace_spark")


def make_types(store: CassandraStore, keyspace: str, types: Iterable[CqlType]) -> None:
    """Make the user types that columns of these types need, and widen those that lack fields.

    Raises UnsupportedError where one has other fields there, of other types or in another order, such as after a field
    was renamed here. Values have their fields by place, as bytes, and would be read as other fields.
    """
    for user_type in user_types_in(types):
        fields = store.fields(keyspace, user_type.name)
        if not fields:
            store.define(create_type_statement(keyspace, user_type))
            continue
        existing = [f"{name} {kind}" for name, kind in fields.items()]
        source_fields = [f"{name} {kind}" for name, kind in zip(user_type.fields, user_type.args, strict=True)]
        shared = min(len(existing), len(source_fields))
        if existing[:shared] != source_fields[:shared]:
            raise UnsupportedError(
                f"{quote_identifier(keyspace)}: type {user_type.name} has the fields {', '.join(existing)} there, and "
                f"{', '.join(source_fields)} are to be written, by their places: rename its fields there "
                "(ALTER TYPE ... RENAME), or write into another keyspace"
            )
        for name in user_type.fields[shared:]:
            store.define(add_field_statement(keyspace, user_type, name))


def create_type_statement(keyspace: str, user_type: CqlType) -> str:
    """CREATE TYPE of a user type."""
    fields = ", ".join(
        f"{quote_identifier(name)} {cql_type}" for name, cql_type in zip(user_type.fields, user_type.args, strict=True)
    )
    return f"CREATE TYPE IF NOT EXISTS {_type_name(keyspace, user_type)} ({fields})"


def add_field_statement(keyspace: str, user_type: CqlType, field: str) -> str:
    """ALTER TYPE that adds one field."""
    cql_type = user_type.args[user_type.fields.index(field)]
    return f"ALTER TYPE {_type_name(keyspace, user_type)} ADD {quote_identifier(field)} {cql_type}"


def _type_name(keyspace: str, user_type: CqlType) -> str:
    return f"{quote_identifier(keyspace)}.{quote_identifier(user_type.name)}"


def require_readable(store: CassandraStore, keyspace: str, name: str) -> None:
    """Raises SettingsError for a table of another version. One that is not there is none."""
    identity = store.identity(keyspace, name)
    if identity is not None:
        noted = identity[1].removeprefix(_COMMENT)
        require_format(f"the table {keyspace}.{name}", int(noted) if noted.isdigit() else noted, FORMAT)


def make_table(store: CassandraStore, keyspace: str, name: str, columns: str) -> None:
    """Make a table of these columns and this key; another stream may have made it meanwhile. Raises RefusedError."""
    store.define(
        f"CREATE TABLE IF NOT EXISTS {quote_identifier(keyspace)}.{name} ({columns}) "
        f"WITH comment = '{_COMMENT}{FORMAT}'"
    )


class NoKeyspaceError(ServiceError):
    """The keyspace of a table there does not exist: its changes wait until somebody makes it."""


class TableWriters(Generic[_TableWriter]):
    """What writes the changes of each definition, made when it is first asked for."""

    def __init__(self, make: Callable[[Table], _TableWriter], clock: Callable[[], float]) -> None:
        """`make` raises what is its table's (table_faults) where there can be none; its changes are set aside then."""
        self._make = make
        self._clock = clock
        self._known: dict[int, tuple[Table, _TableWriter | UnsupportedError, float]] = {}

    def of(self, table: Table) -> _TableWriter:
        """That of a definition. Raises UnsupportedError, and what `make` raises besides."""
        entry = self._known.get(id(table))
        if entry is None or entry[0] is not table or self._clock() >= entry[2]:
            look_again = inf
            try:
                writer: _TableWriter | UnsupportedError = self._make(table)
            except BaseException as error:
                if not is_of_table(error):
                    raise
                writer = error if isinstance(error, UnsupportedError) else UnsupportedError(reason_of(error))
                look_again = self._clock() + UNSUPPORTED_SECONDS
                log.error("%s: its changes go to the dead letters, other tables go on: %s", table, writer)
            entry = self._known[id(table)] = table, writer, look_again
        if isinstance(entry[1], UnsupportedError):
            raise entry[1]
        return entry[1]

    def refused(self) -> dict[str, str]:
        """Why changes of some definitions go to the dead letters now, by `digest_of` these."""
        return {
            digest_of(table): str(writer)
            for table, writer, look_again in self._known.values()
            if isinstance(writer, UnsupportedError) and self._clock() < look_again
        }

    def forget(self) -> None:
        """What the cluster has may have changed."""
        self._known.clear()


def digest_of(table: Table) -> str:
    """What names a definition in every process."""
    text = json.dumps(table_to_json(table), sort_keys=True)
    return blake2b(text.encode(), digest_size=16).hexdigest()


class WorkerStore(CassandraStore):
    """A worker process's connection to a cluster."""

    def define(self, statement: str) -> None:
        """Raises HereOnlyError: tables and types are the driver's."""
        raise HereOnlyError(statement)


@dataclass(frozen=True, slots=True)
class SinkOpener:
    """Makes sinks by [sink.NAME]: the driver's and, by `open`, those of worker processes; equal ones share it.

    It is pickled, and has secrets.
    """

    kind: type[CassandraSink]
    name: str
    settings: CassandraTargetSettings = field(repr=False)
    letters: Letters = LOGGED

    def open(self) -> CassandraSink:
        """One that makes no tables and types."""
        return self.kind(WorkerStore(self.settings, f"sink.{self.name}"), self.settings, self.letters)

    def sink(self) -> CassandraSink:
        """The driver's, for which tasks write too."""
        return self.kind(CassandraStore(self.settings, f"sink.{self.name}"), self.settings, self.letters, self)


@dataclass(frozen=True, slots=True)
class CassandraWriter:
    """Writes a share.

    `refused`: why the cluster does not get what some definitions need, by `digest_of` these. `definitions`: what the
    sink knows of each table, with the offset in `.schemas` that it is of.
    """

    opener: SinkOpener = field(repr=False)
    refused: Mapping[str, str]
    definitions: Mapping[str, tuple[int, Table]] = field(default_factory=dict, repr=False)

    def write(self, share: KafkaPartition, pieces: Iterable[Piece]) -> CommitMessage:
        """As DataWriter says; where it raises, some of the records may be written."""
        with _SINKS.borrowed(self.opener) as sink:
            sink.begin(self)
            return CommitMessage(share, sink.apply(pieces))


class CassandraSink(ABC):
    """A sink that writes piece by piece: what a batch wrote before it failed is written again as it was."""

    _writers: TableWriters[Any]

    def __init__(
        self, store: CassandraStore, settings: CassandraTargetSettings, letters: Letters,
        opener: SinkOpener | None = None,
    ) -> None:  # fmt: skip
        """With an `opener` executors write too."""
        self._store = store
        self._keyspace = settings.keyspace
        self._letters = letters
        self._opener = opener
        self._shares = False  # of others, which the driver may make tables ready for again
        self._refused: Mapping[str, str] = {}
        self._ids: dict[TargetName, UUID] = {}

    def reach(self) -> None:
        """Connect, and write nothing. Raises ServiceError where the cluster does not answer or refuses."""
        self._store.connect()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(executors=self._opener is not None)

    def batch_write(self, batch: MicroBatch, needed: Needed = nothing_needed) -> BatchWrite:
        """As Sink says. Raises ServiceError where the cluster does not answer, or lacks the keyspace, and
        SettingsError where a table there is the source's own. What earlier shares still write has the times of what is
        written, so that SELECT returns the same: they need no fence."""
        return here(self.apply) if batch.here else BatchWrite(self._writer(needed()))

    def apply(self, pieces: Iterable[Piece]) -> Summary:
        """Write pieces; some of them may be written where it raises."""
        summary = Summary()
        try:
            for piece in pieces:
                if self._shares:
                    self._look_again(piece.changes)
                letters = list(piece.dead_letters)
                summary += self._piece(piece, letters)
                self._letters.put(letters)
        except BaseException:
            self._forget()
            raise
        return summary

    def close(self) -> None:
        """Give the connections back."""
        self._store.close()

    def _writer(self, definitions: Definitions) -> CassandraWriter:
        """Make and widen tables for shares."""
        if self._opener is None:
            raise ValueError("executors cannot write into this sink: its capabilities say so")
        for announced, table in definitions:
            with suppress(UnsupportedError):  # `TableWriters` has logged it, and writers get it
                self._make_ready(announced, table)
        return CassandraWriter(self._opener, self._writers.refused(), self._definitions())

    def begin(self, plan: CassandraWriter) -> None:
        """In a worker process: what the plan of the next share says."""
        self._shares, self._refused = True, plan.refused

    def _look_again(self, changes: Sequence[Delivered]) -> None:
        """Forget what is known of the cluster where it has other tables by now than those."""
        tables = {id(delivered.change.table): delivered.change.table for delivered in changes}.values()
        for name in {self._target_name(table) for table in tables}:
            if name in self._ids:
                identity = self._store.identity(*name)
                if identity is None or identity[0] != self._ids[name]:
                    self._forget()
                    return

    def _made(self, table: Table, name: str, make: Callable[[], _TableWriter]) -> _TableWriter:
        """What `make` makes for a definition, or alters, under a name there.

        Raises UnsupportedError where the plan or the cluster refuses that, NoKeyspaceError where the keyspace lacks.
        """
        if self._refused and (reason := self._refused.get(digest_of(table))) is not None:
            raise UnsupportedError(reason)
        try:
            with suppress(RefusedError):  # another stream may have made or altered it meanwhile
                return make()
            return make()
        except RefusedError as error:
            if not self._store.has_keyspace(self._keyspace_of(table.keyspace)):
                raise NoKeyspaceError(
                    f"table {name}: {error}; the keyspace must exist, and this role may make and alter tables in it"
                ) from error
            raise UnsupportedError(
                f"{name}: Cassandra refuses to make or widen it as {table} is: {error}; change it there"
            ) from error

    def _applied(
        self,
        items: Sequence[_Item],
        apply: Callable[[Sequence[_Item]], None],
        again: Callable[[], Sequence[_Item]],
        refuse: Callable[[_Item, str], None],
    ) -> Sequence[_Item]:
        """Those that are written. Where some are refused, they are made `again`: somebody may have dropped a table."""
        try:
            apply(items)
        except BaseException as error:
            if not is_of_table(error):
                raise
            self._forget()
            return in_halves(again(), apply, lambda item, why: refuse(item, f"Cassandra refuses it: {_words(why)}"))
        return items

    def _keyspace_of(self, keyspace: str) -> str:
        return keyspace_name(self._keyspace, keyspace)

    def _make_ready(self, announced: int, table: Table) -> None:
        """Make what a definition needs, announced at this offset of `.schemas`; raises as `TableWriters.of`."""
        del announced
        self._writers.of(table)

    def _definitions(self) -> Mapping[str, tuple[int, Table]]:
        """What workers have to know of tables beside the definition of each change, as CassandraWriter has it."""
        return {}

    @abstractmethod
    def _piece(self, piece: Piece, letters: list[DeadLetter]) -> Summary:
        """Write a piece; `letters` has its dead letters, and gets those of changes that cannot be written."""

    @abstractmethod
    def _target_name(self, table: Table) -> TargetName:
        """Where the changes of a source's table are written."""

    def _forget(self) -> None:
        """What the cluster has may have changed."""
        self._writers.forget()
        self._ids.clear()


def _words(error: BaseException) -> str:
    return str(error) if isinstance(error, RefusedError) else reason_of(error)


_SINKS: Final = WorkerCache[SinkOpener, CassandraSink](lambda opener: opener.open())
