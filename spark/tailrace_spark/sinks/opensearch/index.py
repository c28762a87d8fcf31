"""The index of one source table: made, found again, widened, and rebuilt where columns go.

NAME is an alias that readers search, with a filter for the rows that SELECT shows, of an index NAME-000001. Documents
are written through a second alias, NAME-000001-write, which goes with its index. Where an index was taken away, no
request makes one with a mapping that the server guesses. Each truncation gives that alias another name, ...-write-2, so
that the server refuses who writes by what was before. NAME is the table's whose id the mapping's `_meta` has.

The record has a version of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final
from uuid import UUID

from tailrace_schemas.change import Deletion
from tailrace_schemas.errors import CorruptError, ServiceError
from tailrace_schemas.table import Table
from tailrace_spark.merge.table_record import TableRecord, decode_record, encode_record
from tailrace_spark.rowstate.deletions import stronger
from tailrace_spark.rowstate.truncation import EVERYTHING
from tailrace_spark.sinks.opensearch.bulk import Op, Version
from tailrace_spark.sinks.opensearch.client import SearchClient, name
from tailrace_spark.sinks.opensearch.documents import OWN, TABLE_ID, Documents, count_fields, covers
from tailrace_spark.sinks.opensearch.settings import OpensearchSinkSettings
from tailrace_spark.sinks.opensearch.state import FIELDS, KIND_TABLE, own
from tailrace_spark.sinks.table_faults import TableRefusedError

log = logging.getLogger("tailrace_spark")

_META: Final = "tailrace"
_WRITE: Final = "-write"
_LEAST_FIELDS, _LEAST_NESTED = 1000, 50  # the servers' own limits
_ROOM: Final = 200
_MOST_ENTRIES: Final = 2**31 - 1  # by default 10,000
_MICROS: Final = 1_000_000
_ERASED: Final = "erased"
_LEAVING: Final = "leaving"


class StaleError(Exception):
    """The index no longer has what was known of the whole table."""


@dataclass(slots=True)
class TableIndex:
    """One source table's index, as it was when it was last looked at."""

    client: SearchClient
    alias: str
    """What readers search."""
    index: str
    entry: TableEntry
    version: Version | None
    """Of the document that has `entry`."""
    write_alias: str
    """What documents are written through."""

    def note(self, entry: TableEntry) -> None:
        """Keep what is known now. Raises ServiceError where another writer came first."""
        if entry == self.entry and self.version is not None:
            return
        document = {OWN: own(KIND_TABLE, encode_entry(entry))}
        written = self.client.bulk(self.write_alias, [Op(TABLE_ID, self.version, document)])
        if TABLE_ID not in written.done:
            why = written.refused.get(TABLE_ID, "another writer came first")
            raise ServiceError(f"{self.index}: {why}; the batch will be delivered again")
        self.entry, self.version = entry, written.done[TABLE_ID]

    def fence(self) -> None:
        """Have the server refuse what others send through the write alias that they know, from now on.

        `drain` then waits for what they had sent.
        """
        stem = self.index + _WRITE
        former = int(self.write_alias.removeprefix(stem).lstrip("-") or 1)
        alias = f"{stem}-{former + 1}"
        actions = [
            {"remove": {"index": self.index, "alias": self.write_alias}},
            {"add": {"index": self.index, "alias": alias}},
        ]
        self._settled(self.client.post("/_aliases", {"actions": actions}))
        self.write_alias = alias

    def drain(self) -> None:
        """Wait until the index has all writes that the server has taken."""
        # The block is acknowledged when every shard has done what it began before. A process that dies before the
        # next request leaves it: so the record says by then that the index is to be erased, and who reads that drains
        # it again. Where there was a block already, nothing was waited for.
        for _ in range(2):
            blocked = self.client.put(f"/{name(self.index)}/_block/write", None)
            self._settled(self.client.put(f"/{name(self.index)}/_settings", {"index.blocks.write": None}))
            if blocked["indices"]:
                break
        self._settled(blocked)

    def require_exists(self, why: str) -> None:
        """Raises ServiceError, saying why, where the index is gone."""
        if self.client.get(f"/{name(self.index)}?filter_path=*.aliases") is None:
            raise ServiceError(f"{self.index}: {why}")

    def _settled(self, answer: Any) -> None:
        if not answer.get("acknowledged") or not answer.get("shards_acknowledged", True):
            raise ServiceError(f"{self.index}: not all nodes answer; the batch will be delivered again")

    def widen(self, documents: Documents) -> None:
        """Add the fields of a definition."""
        self.client.put(f"/{name(self.index)}/_settings", _limits(documents))
        self.client.put(f"/{name(self.index)}/_mapping", {"properties": documents.properties})


def _limits(documents: Documents) -> dict[str, int]:
    """Room for all fields of a definition, and for more: tables may have more columns than indexes by default.

    There is room for whatever entries a map may have, each of which is a nested document.
    """
    fields, nested = count_fields(documents.properties)
    return {
        "index.mapping.total_fields.limit": max(_LEAST_FIELDS, fields + _ROOM),
        "index.mapping.nested_fields.limit": max(_LEAST_NESTED, nested + _ROOM),
        "index.mapping.nested_objects.limit": _MOST_ENTRIES,
    }


class Indexes:
    """The indexes of a sink's tables."""

    def __init__(self, client: SearchClient, settings: OpensearchSinkSettings) -> None:
        self._client = client
        self._settings = settings
        self._known: dict[UUID, TableIndex] = {}

    def forget(self, table_id: UUID | None = None) -> None:
        """Look at an index again when it is next asked for; None: at all of them."""
        if table_id is None:
            self._known.clear()
        else:
            self._known.pop(table_id, None)

    @property
    def untruncated(self) -> frozenset[UUID]:
        """The ids of the tables that were looked at, and have no truncations."""
        indexes = self._known.items()
        return frozenset(table_id for table_id, index in indexes if not index.entry.truncations.statements)

    def of(self, table: Table) -> TableIndex | None:
        """The index of a table; None where there is none yet."""
        index = self._known.get(table.id)
        if index is None:
            _, index = self._find(table)
            if index is not None:
                self._known[table.id] = index
        return index

    def all(self) -> Iterator[TableIndex]:
        """Those of all tables that were ever followed under this sink's names."""
        pattern = name(self._settings.index.format(keyspace="*", table="*")).replace("%2A", "*")
        aliases = self._client.get(f"/_alias/{pattern}") or {}
        mappings = self._client.get(f"/{pattern}/_mapping?filter_path=*.mappings._meta.{_META}") or {}
        for index in sorted(aliases.keys() & mappings.keys()):
            # An index may have aliases of others too: a table that was found by one of these would be rebuilt under it.
            alias = _alias_of(index)
            table_index = self._open(alias, index) if alias in aliases[index]["aliases"] else None
            if table_index is not None:
                yield self._known.setdefault(table_index.entry.definition.id, table_index)

    def make(self, table: Table, announced: int) -> TableIndex:
        """The index of a table that has none."""
        alias, index = self._find(table)
        if index is None:
            documents = Documents(table)
            self._create(f"{alias}-000001", alias, documents)
            entry = TableEntry(table, announced)
            index = TableIndex(self._client, alias, f"{alias}-000001", entry, None, f"{alias}-000001{_WRITE}")
            index.note(index.entry)
        self._known[table.id] = index
        return index

    def successor(self, old: TableIndex, documents: Documents) -> TableIndex:
        """A new, empty index that no reader sees yet, in which a table is to be rebuilt."""
        index = _next_index(old.index)
        self._client.delete(f"/{name(index)}")  # of one who died making it
        self._create(index, None, documents)
        return TableIndex(self._client, old.alias, index, old.entry, None, index + _WRITE)

    def switch(self, old: TableIndex, new: TableIndex) -> None:
        """Have readers search the new index from one moment to the next; the old one goes."""
        actions = [
            {"add": {"index": new.index, "alias": new.alias, "filter": _FILTER}},
            {"remove_index": {"index": old.index}},
        ]
        self._client.post("/_aliases", {"actions": actions})
        log.info("index alias %s was rebuilt into %s", new.alias, new.index)
        self._known[new.entry.definition.id] = new

    def _find(self, table: Table) -> tuple[str, TableIndex | None]:
        """The name under which a table stands, or is to stand: the first of NAME, NAME-2, ... that is its."""
        for alias in self._aliases(table):
            indexes = self._client.get(f"/_alias/{name(alias)}")
            if indexes is None:
                if self._client.get(f"/{name(alias)}") is not None:
                    raise self._foreign(alias)
                return alias, None
            if len(indexes) != 1:
                raise TableRefusedError(
                    f"{self._settings.location}: {alias} names several indexes: {', '.join(indexes)}"
                )
            [index] = indexes
            table_index = self._open(alias, index)
            if table_index is None:
                owner = self._owner(index)
                if owner is None:
                    raise self._foreign(alias)
                if owner[0] != str(table.id):
                    continue
                # Made by one who died before it said what it is.
                return alias, TableIndex(self._client, alias, index, TableEntry(table, -1), None, owner[1])
            if table_index.entry.definition.id == table.id:
                return alias, table_index
        raise AssertionError

    def _aliases(self, table: Table) -> Iterator[str]:
        base = self._settings.index_of(table.keyspace, table.name)
        yield base
        for suffix in count(2):
            yield f"{base}-{suffix}"

    def _foreign(self, alias: str) -> TableRefusedError:
        return TableRefusedError(
            f"{self._settings.location}: {alias} is an index that is not this sink's: give this sink another `index`"
        )

    def _open(self, alias: str, index: str) -> TableIndex | None:
        owner = self._owner(index)
        if owner is None:
            return None
        document = self._client.documents(index, [TABLE_ID]).get(TABLE_ID)
        if document is None:
            return None
        return TableIndex(self._client, alias, index, decode_entry(document.state), document.version, owner[1])

    def _owner(self, index: str) -> tuple[str, str] | None:
        """The id of the table whose index it is, and the write alias; None where it is not ours."""
        path = f"/{name(index)}?filter_path=*.aliases,*.mappings._meta.{_META}"
        for described in (self._client.get(path) or {}).values():
            meta: Any = described.get("mappings", {}).get("_meta", {}).get(_META)
            aliases = [alias for alias in described.get("aliases", {}) if alias.startswith(index + _WRITE)]
            return None if meta is None else (str(meta["table"]), aliases[0] if aliases else index + _WRITE)
        return None

    def _create(self, index: str, alias: str | None, documents: Documents) -> None:
        settings = _limits(documents)
        if self._settings.shards is not None:
            settings["number_of_shards"] = self._settings.shards
        if self._settings.replicas is not None:
            settings["number_of_replicas"] = self._settings.replicas
        aliases: dict[str, Any] = {index + _WRITE: {}}
        if alias is not None:
            aliases[alias] = {"filter": _FILTER}
        mappings = {
            "_meta": {_META: {"table": str(documents.table.id), "name": str(documents.table)}},
            "_source": {"excludes": [OWN]},
            "dynamic": False,
            "properties": {**documents.properties, OWN: {"properties": FIELDS}},
        }
        body = {"settings": settings, "mappings": mappings, "aliases": aliases}
        self._client.put(f"/{name(index)}", body)


def _alias_of(index: str) -> str:
    """The alias by which readers search an index of ours: NAME of NAME-000001."""
    return index.rpartition("-")[0]


def _next_index(index: str) -> str:
    """The index in which a table is rebuilt: NAME-000002 after NAME-000001."""
    generation = int(index.rpartition("-")[2])
    return f"{_alias_of(index)}-{generation + 1:06d}"


def widens(former: Table, definition: Table) -> bool:
    """Whether the index of one definition has but to be widened for another."""
    if former == definition:
        return True
    existing, new = Documents(former), Documents(definition)
    same_keys = [column.name for column in former.key] == [column.name for column in definition.key]
    same_names = same_keys and existing.names.items() <= new.names.items()
    return same_names and former.dropped == definition.dropped and covers(existing.properties, new.properties)


_FILTER: Final = {"term": {f"{OWN}.there": True}}


@dataclass(frozen=True, slots=True)
class TableEntry(TableRecord):
    """What is known of a table as a whole.

    `erased`: what truncations took that is yet to go from the rows that are there; None: nothing. `leaving`: its index
    is being rebuilt, and what is written into this one may be lost.
    """

    erased: Deletion | None = None
    leaving: bool = False

    def with_erased(self, erased: Deletion | None) -> TableEntry:
        """The same where a batch's truncations took this too; None: nothing."""
        return self if erased is None else replace(self, erased=stronger(erased, self.erased))


def encode_entry(entry: TableEntry) -> bytes:
    """The bytes kept of a table."""
    own_members: dict[str, Any] = {} if entry.erased is None else {_ERASED: entry.erased.written}
    return encode_record(entry, own_members | ({_LEAVING: True} if entry.leaving else {})).encode()


def decode_entry(encoded: bytes) -> TableEntry:
    """What these bytes say. Raises DecodeError, and SettingsError for those of another version."""
    record, additions = decode_record(encoded)
    erased = additions.get(_ERASED)
    if not isinstance(erased, int | None):
        raise CorruptError(f"a table's record is damaged: `{_ERASED}` is {erased!r}")
    return TableEntry(
        record.definition,
        record.announced,
        record.truncations,
        record.purged_to,
        erased=None if erased is None else _erased(erased),
        leaving=_LEAVING in additions,
    )


def _erased(written: int) -> Deletion:
    # Which deletion it is decides how it is erased, so that of everything must come back as itself.
    return EVERYTHING if written == EVERYTHING.written else Deletion(written, written // _MICROS)
