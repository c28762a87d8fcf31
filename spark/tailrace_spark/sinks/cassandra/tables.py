"""The sink of another Cassandra cluster: each change written again with its own write times and TTLs."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tailrace_schemas.cql.types import CqlType, quote_identifier
from tailrace_schemas.errors import SettingsError, UnsupportedError
from tailrace_schemas.table import ColumnKind, Table
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, Summary
from tailrace_spark.sinks.cassandra.cluster import CassandraStore, KeyColumn
from tailrace_spark.sinks.cassandra.cql import Mutation, Writes, check_writable, target_type
from tailrace_spark.sinks.cassandra.settings import CassandraSinkSettings
from tailrace_spark.sinks.cassandra.sink_base import CassandraSink, SinkOpener, TableWriters, TargetName, make_types
from tailrace_spark.sinks.letters import Letters
from tailrace_spark.sinks.table_faults import is_of_table, reason_of, refusals_of

log = logging.getLogger("tailrace_spark")

_FOLLOWS: Final = "follows the table "


@dataclass(frozen=True, slots=True)
class _Written:
    """A change, and its statements."""

    delivered: Delivered
    mutation: Mutation


class CassandraTablesSink(CassandraSink):
    """Writes changes into tables like the source's, in keyspaces that must exist; tables are made and widened.

    Each change is one mutation there, with the times of its cells. So a batch that comes again, whole or in part, and
    changes in any order, leave what they would have left once and in order. What CQL cannot say
    (docs/sinks/cassandra.md) or the cluster refuses goes to the dead letters.
    """

    def __init__(
        self, store: CassandraStore, settings: CassandraSinkSettings, letters: Letters,
        opener: SinkOpener | None = None,
    ) -> None:  # fmt: skip
        """With an `opener` tasks write too."""
        super().__init__(store, settings, letters, opener)
        self._settings = settings
        self._writers = TableWriters(self._ready, time.time)

    def _piece(self, piece: Piece, letters: list[DeadLetter]) -> Summary:
        now = int(time.time())
        written = self._writes(piece.changes, letters, now)

        def again() -> list[_Written]:
            return self._writes([write.delivered for write in written], letters, now)

        def refuse(refused: _Written, words: str) -> None:
            letters.append(DeadLetter(refused.delivered.record_id, words, refused.delivered.message))

        applied = self._applied(written, self._apply, again, refuse)
        refused = letters[len(piece.dead_letters) :]
        return Summary(
            changes=len(piece.changes) - len(refused),
            rows=len(applied),
            dead_letters=len(letters),
            refused=refusals_of(piece.changes, refused),
        )

    def _writes(self, changes: Iterable[Delivered], letters: list[DeadLetter], now: int) -> list[_Written]:
        writes: list[_Written] = []
        largest = self._settings.largest_mutation_kibibytes
        for delivered in changes:
            try:
                mutation = self._writers.of(delivered.change.table).mutation(delivered.change, now)
            except BaseException as error:
                if not is_of_table(error):
                    raise
                letters.append(DeadLetter(delivered.record_id, reason_of(error), delivered.message))
                continue
            if mutation is not None and mutation.size > largest << 10:
                reason = f"{mutation.size} bytes are more than largest_mutation_kibibytes, {largest}"
                letters.append(DeadLetter(delivered.record_id, reason, delivered.message))
            elif mutation is not None:
                writes.append(_Written(delivered, mutation))
        return writes

    def _apply(self, written: Iterable[_Written]) -> None:
        self._store.apply(write.mutation for write in written)

    def _ready(self, table: Table) -> Writes:
        """What writes a definition's changes; its table is made or widened first. Raises as `_made`."""
        keyspace = self._keyspace_of(table.keyspace)
        name = f"{quote_identifier(keyspace)}.{quote_identifier(table.name)}"
        return self._made(table, name, lambda: self._prepare(table, keyspace, name))

    def _prepare(self, table: Table, keyspace: str, name: str) -> Writes:
        check_writable(table, lists=self._settings.lists == "map")
        types = {column.name: target_type(column.type) for column in (*table.key, *table.columns)}
        make_types(self._store, keyspace, types.values())
        existing = self._store.columns(keyspace, table.name)
        if not existing:
            self._store.define(_create(table, name, types))
            log.info("writing table %s to %s", table, name)
            existing = self._store.columns(keyspace, table.name)
        identity = self._store.identity(keyspace, table.name)
        _identify(table, name, identity)
        key, target_static = self._store.layout(keyspace, table.name)
        _check(table, name, types, existing, key)
        static = {column.name for column in table.static}
        _check_static(table, name, static, target_static, types.keys() & existing.keys())
        for column in [column for column in types if column not in existing]:
            kind = " STATIC" if column in static else ""
            self._store.define(f"ALTER TABLE {name} ADD {quote_identifier(column)} {types[column]}{kind}")
            log.info("%s: column %s added", name, column)
        if identity is not None:
            self._ids[keyspace, table.name] = identity[0]
        return Writes(table, name)

    def _target_name(self, table: Table) -> TargetName:
        return self._keyspace_of(table.keyspace), table.name


def _identify(table: Table, name: str, identity: tuple[UUID, str] | None) -> None:
    """Raises SettingsError where the table there is the source's own, UnsupportedError where it was made for another of
    its name. One that somebody made beforehand says nothing."""
    if identity is None:
        return
    table_id, comment = identity
    if table_id == table.id:
        raise SettingsError(
            f"{name} is the source's own table: the sink would write what it reads. Choose another cluster, or another "
            "keyspace"
        )
    if comment.startswith(_FOLLOWS) and comment != _comment(table):
        raise UnsupportedError(
            f"{name} {comment}, and {table} was dropped and made again since, as {table.id}: drop it there"
        )


def _comment(table: Table) -> str:
    return f"{_FOLLOWS}{table.id}"


def _create(table: Table, name: str, required: Mapping[str, CqlType]) -> str:
    static = {column.name for column in table.static}
    columns = ", ".join(
        f"{quote_identifier(column)} {cql_type}{' STATIC' if column in static else ''}"
        for column, cql_type in required.items()
    )
    partition = ", ".join(quote_identifier(column.name) for column in table.partition_key)
    clustering = "".join(f", {quote_identifier(column.name)}" for column in table.clustering)
    order = ", ".join(
        f"{quote_identifier(column.name)} {'DESC' if column.descending else 'ASC'}" for column in table.clustering
    )
    options = f"{f'CLUSTERING ORDER BY ({order}) AND ' if order else ''}comment = '{_comment(table)}'"
    return f"CREATE TABLE IF NOT EXISTS {name} ({columns}, PRIMARY KEY (({partition}){clustering})) WITH {options}"


def _check(
    table: Table, name: str, required: Mapping[str, CqlType], existing: Mapping[str, str], key: Sequence[KeyColumn]
) -> None:
    """Raises UnsupportedError where the table there has another key, or a column of another type."""
    source_key = [
        KeyColumn(column.name, column.kind.value, column.kind is ColumnKind.CLUSTERING and column.descending)
        for column in table.key
    ]
    if list(key) != source_key:
        raise UnsupportedError(
            f"{name} has another primary key than {table}: rename or drop it there, or write into another keyspace"
        )
    for column, cql_type in required.items():
        if existing.get(column, str(cql_type)) != str(cql_type):
            raise UnsupportedError(
                f"{name}: column {column} is {existing[column]} there, and {cql_type} is to be written; drop or rename "
                "the table there, or write into another keyspace"
            )


def _check_static(table: Table, name: str, own: Set[str], target: Set[str], shared: Set[str]) -> None:
    """Raises UnsupportedError where a column that both have is static in one alone.

    An INSERT of a row would else write the column of its whole partition.
    """
    for column in sorted((own ^ target) & shared):
        kinds = ("static", "not") if column in target else ("not static", "is")
        raise UnsupportedError(
            f"{name}: column {column} is {kinds[0]} there, and {kinds[1]} in {table}: drop or rename the table there, "
            "or write into another keyspace"
        )
