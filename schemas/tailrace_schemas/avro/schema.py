"""The Avro schemas of a table's changes and keys, generated deterministically (docs/contracts.md section 3)."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from fastavro import parse_schema, schemaless_reader

from tailrace_schemas.avro.convert import without_logical_types
from tailrace_schemas.avro.frames import body_at
from tailrace_schemas.avro.names import Names, avro_name, bound_name, namespace
from tailrace_schemas.change import OPS, Origin
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.forms import PLAIN_FORMS, ValueForms
from tailrace_schemas.table import Column, Table

Json = dict[str, object]
FieldsOf = Callable[[], list[Json]]
KeyChoice = Literal["partition", "primary"]

# The types that every table's schema defines; a user type or column may want one of these names.
_RESERVED: Final = (
    "Bound", "Cell", "Change", "Columns", "CounterId", "Digest", "Duration", "Key", "Op", "Origin", "PartitionKey",
    "PrimaryKey", "Range", "Raw", "Shard", "Source", "Where",
)  # fmt: skip

_PRIMITIVES: Final[Mapping[str, str]] = {
    "boolean": "boolean",
    "int": "int",
    "smallint": "int",
    "tinyint": "int",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "text": "string",
    "ascii": "string",
    "blob": "bytes",
    # Any int64 is a legal timestamp in Cassandra and Spark's Avro reader dies on 2^62 as timestamp-millis: plain long.
    # Avro has no logical type for a time of day in nanoseconds, so that `time` is a plain long always.
    "timestamp": "long",
    "date": "int",
    "time": "long",
    "uuid": "string",
    "timeuuid": "string",
    "inet": "string",
    "varint": "string",
    "decimal": "string",
    "custom": "bytes",
    "empty": "bytes",
}


# What outward schemas say of the values besides: Avro's own words, where they lose nothing.
_CALENDAR: Final[Mapping[str, str]] = {"timestamp": "timestamp-millis", "date": "date"}
_UUIDS: Final = ("uuid", "timeuuid")
# The types that only some forms define. Reserved with them alone: every other schema has its names from before.
_UUID: Final = "Uuid"
_DECIMAL: Final = "Decimal"
# The fields before `key` in every change, and a null of `key`, which is a union.
_BEFORE: Final = 6
_NULL: Final = b"\x00"


def _field(name: str, type_of: object, **attributes: object) -> Json:
    return {"name": name, "type": type_of, **attributes}


def _nullable(name: str, type_of: object, **attributes: object) -> Json:
    return {"name": name, "type": ["null", type_of], "default": None, **attributes}


def _record(name: str, fields: list[Json], **attributes: object) -> Json:
    return {"type": "record", "name": name, "fields": fields, **attributes}


def _array(items: object) -> Json:
    return {"type": "array", "items": items}


def _prefix_fields() -> list[Json]:
    """The first six fields: equal for every table, for ever, so that one schema reads the head of any record."""
    return [
        _field("op", {"type": "enum", "name": "Op", "symbols": [op.value for op in OPS], "default": "update"}),
        _field("token", "long"),
        _field("written", "long"),
        _nullable("ttl", "int"),
        _nullable("expires", "long"),
        _field("digest", {"type": "fixed", "name": "Digest", "size": 16}),
    ]


class _Types:
    """Avro types of CQL types, each named type defined where it is first met and named from then on.

    Names follow from the column alone: two columns of one type have types of their own. Else a type would get another
    name when a column comes or goes, which no registry's rule allows. `outward` ones have logical types.
    """

    def __init__(self, forms: ValueForms = PLAIN_FORMS, *, outward: bool = False) -> None:
        self._forms = forms
        self._outward = outward
        named_forms = ((_UUID, forms.uuids == "fixed"), (_DECIMAL, forms.decimals == "bytes"))
        self._names = Names((*_RESERVED, *(name for name, used in named_forms if used)))
        self._defined: dict[str, str] = {}

    def value(self, cql_type: CqlType, hint: str) -> object:
        """The Avro type of a value of a frozen or scalar type; `hint` names records that have no name in CQL."""
        match cql_type.kind:
            case "list" | "set" | "vector":
                return _array(["null", self.value(cql_type.args[0], hint + "_item")])
            case "map":
                return _array(self._unnamed(cql_type, hint + "_entry", lambda: self._entry(cql_type, hint)))
            case "tuple":
                return self._unnamed(cql_type, hint + "_tuple", lambda: self._tuple(cql_type, hint))
            case "udt":
                return self.user_type(cql_type)
            case "duration":
                return self._duration()
            case "counter":
                return _array(self._shard())
        return self._scalar(cql_type.kind)

    def _scalar(self, kind: str) -> object:
        primitive = _PRIMITIVES[kind]
        if kind in _CALENDAR and (self._outward or self._forms.timestamps == "logical"):
            return {"type": primitive, "logicalType": _CALENDAR[kind]}
        if kind in _UUIDS and self._forms.uuids == "fixed":
            return self._own(_UUID, lambda: {"type": "fixed", "size": 16, "logicalType": "uuid", "cql.type": "uuid"})
        if kind in _UUIDS and self._outward:
            return {"type": primitive, "logicalType": "uuid"}
        if kind == "varint" and self._forms.decimals == "bytes":
            return {"type": "bytes", "cql.type": kind}
        if kind == "decimal" and self._forms.decimals == "bytes":
            fields = [_field("scale", "int"), _field("value", "bytes")]
            return self._own(_DECIMAL, lambda: {"type": "record", "fields": fields, "cql.type": kind})
        return primitive

    def user_type(self, cql_type: CqlType) -> object:
        """A record of nullable fields, one per user type and schema."""
        name = avro_name(cql_type.name)
        return self._once(f"udt {cql_type.name}", name, lambda: self._udt_fields(cql_type, name))

    def claim(self, proposed: str) -> str:
        """A name that no other type of this schema has."""
        return self._names.claim(proposed)

    def _unnamed(self, cql_type: CqlType, proposed: str, fields: FieldsOf) -> object:
        return self._once(f"{proposed} {cql_type}", proposed, fields)

    def _once(self, identity: str, proposed: str, fields: FieldsOf) -> object:
        if identity in self._defined:
            return self._defined[identity]
        name = self._defined[identity] = self._names.claim(proposed)
        return _record(name, fields())

    def _entry(self, cql_type: CqlType, hint: str) -> list[Json]:
        key, value = cql_type.args
        return [
            _nullable("key", self.value(key, hint + "_key")),
            _nullable("value", self.value(value, hint + "_value")),
        ]

    def _tuple(self, cql_type: CqlType, hint: str) -> list[Json]:
        return [_nullable(f"f{i}", self.value(arg, f"{hint}_f{i}")) for i, arg in enumerate(cql_type.args)]

    def _udt_fields(self, cql_type: CqlType, hint: str) -> list[Json]:
        return [
            _nullable(avro_name(name), self.value(arg, f"{hint}_{avro_name(name)}"), **_described(name, arg))
            for name, arg in zip(cql_type.fields, cql_type.args, strict=True)
        ]

    def _own(self, name: str, definition: Callable[[], Json]) -> object:
        """A type whose name is reserved for it."""
        if name in self._defined:
            return name
        self._defined[name] = name
        return {"name": name, **definition()}

    def _duration(self) -> object:
        fields = [_field("months", "int"), _field("days", "int"), _field("nanoseconds", "long")]
        return self._own("Duration", lambda: {"type": "record", "fields": fields})

    def _shard(self) -> object:
        counter_id = {"type": "fixed", "name": "CounterId", "size": 16}
        fields = [_field("id", counter_id), _field("clock", "long"), _field("count", "long")]
        return self._own("Shard", lambda: {"type": "record", "fields": fields})


def _described(name: str, cql_type: CqlType) -> Json:
    return {"cql.name": name, "cql.type": str(cql_type)}


def _edit(column: Column, types: _Types) -> Json:
    """The record that edits a multi-cell column: what was set, what was removed, when all of it was deleted."""
    hint = avro_name(column.name)
    name = types.claim(hint + "_edit")
    deleted_at = _nullable("deleted_at", "long")
    if column.type.kind == "udt":
        fields = [deleted_at, _field("set", types.user_type(column.type)), _field("removed", _array("string"))]
        return _record(name, fields)
    path = _field("path", "bytes")
    args = column.type.args
    keyed = [_nullable("key", types.value(args[0], hint + "_key"))] if column.type.kind in ("set", "map") else []
    valued = [_nullable("value", types.value(args[-1], hint + "_value"))] if column.type.kind in ("list", "map") else []
    removed_key = [_nullable("key", types.value(args[0], hint + "_key"))] if keyed else []
    set_record = _record(types.claim(hint + "_set"), [path, *keyed, *valued])
    removed_record = _record(types.claim(hint + "_removed"), [path, *removed_key])
    return _record(name, [deleted_at, _field("set", _array(set_record)), _field("removed", _array(removed_record))])


def _key_fields(columns: tuple[Column, ...], types: _Types, name_of: Callable[[str], str] = avro_name) -> list[Json]:
    return [
        _nullable(name_of(c.name), types.value(c.type, avro_name(c.name)), **_described(c.name, c.type))
        for c in columns
    ]


def _column_field(column: Column, types: _Types) -> Json:
    type_of = _edit(column, types) if column.type.multicell else types.value(column.type, avro_name(column.name))
    return _nullable(
        avro_name(column.name), type_of, **_described(column.name, column.type), **{"cql.kind": column.kind.value}
    )


def _cell() -> Json:
    return _record(
        "Cell",
        [
            _field("column", "string"),
            _nullable("path", "bytes"),
            _field("written", "long"),
            _nullable("ttl", "int"),
            _nullable("expires", "long"),
        ],
    )


def _raw() -> Json:
    where_enum = {"type": "enum", "name": "Where", "symbols": ["value", "key", "start", "end"]}
    return _record(
        "Raw",
        [_field("column", "string"), _nullable("path", "bytes"), _field("where", where_enum), _field("bytes", "bytes")],
    )


def _source() -> Json:
    origin = {"type": "enum", "name": "Origin", "symbols": [origin.value for origin in Origin], "default": "log"}
    return _record(
        "Source",
        [
            _field("host", "string"),
            _field("datacenter", "string"),
            _field("epoch", "int"),
            _field("segment", "long"),
            _field("offset", "long"),
            _field("index", "int"),
            _field("count", "int"),
            _field("origin", origin),
            _field("durable", "boolean"),
            _field("seen", "long"),
            _field("flags", "int"),
        ],
    )


def value_schema(table: Table, prefix: str, forms: ValueForms = PLAIN_FORMS, *, outward: bool = False) -> Json:
    """The schema of a table's changes, as a JSON value; `outward`: with logical types, for readers of other programs.

    The binary form of a record is the same with `outward` and without.
    """
    types = _Types(forms, outward=outward)
    key = _record("Key", _key_fields(table.key, types))
    columns = _record("Columns", [_column_field(column, types) for column in table.columns])
    bound = [*_key_fields(table.clustering, types, bound_name), _field("count", "int"), _field("inclusive", "boolean")]
    ends = [_field("start", _record("Bound", bound)), _field("end", "Bound")]
    return _record(
        "Change",
        [
            *_prefix_fields(),
            _nullable("key", key),
            _field("columns", columns),
            _field("deleted", _array("string")),
            _nullable("raw", _array(_raw())),
            _nullable("cells", _array(_cell())),
            _nullable("range", _record("Range", ends)),
            _field("source", _source()),
        ],
        namespace=namespace(prefix, table.keyspace, table.name),
        **_table_properties(table),
    )


def key_schema(
    table: Table,
    prefix: str,
    key: KeyChoice = "partition",
    forms: ValueForms = PLAIN_FORMS,
    *,
    outward: bool = False,
) -> Json:
    """The schema of a table's Kafka keys: a record of the partition key's columns, or of all of the primary key's."""
    types = _Types(forms, outward=outward)
    return _record(
        "PartitionKey" if key == "partition" else "PrimaryKey",
        _key_fields(table.partition_key if key == "partition" else table.key, types),
        namespace=namespace(prefix, table.keyspace, table.name),
        **{"cql.name": str(table), "cql.table_id": str(table.id)},
    )


def _table_properties(table: Table) -> Json:
    return {
        "cql.name": str(table),
        "cql.table_id": str(table.id),
        "cql.dropped": {dropped.column.name: dropped.dropped_at for dropped in table.dropped},
        "cql.clustering_order": [f"{c.name} {'desc' if c.descending else 'asc'}" for c in table.clustering],
    }


def canonical_text(schema: Json) -> str:
    """The whole schema as JSON with sorted keys and no spaces: what is published and what the id is made of."""
    return json.dumps(schema, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def schema_id(text: str) -> bytes:
    """The 8 bytes that name a schema in a message: the head of SHA-256 over its canonical text.

    Avro's own fingerprint drops logical types and properties, so a bigint and a timestamp column would share it.
    """
    return hashlib.sha256(text.encode()).digest()[:8]


# The head of every table's record: read it with this schema as the writer's, and the rest of the bytes are left.
PREFIX_SCHEMA: Final[str] = canonical_text(_record("Change", _prefix_fields(), namespace="tailrace"))


def layout(schema: Any) -> object:
    """What stands where in the bytes: records with the names of their fields, unions, arrays, and Avro's own types.

    Equal for schemas whose records have the same bytes. Logical types and names of types are no part of it.
    """
    return _Layout().of(schema)


class _Layout:
    """Walks a schema; named types are known from where they are first met."""

    def __init__(self) -> None:
        self._named: dict[str, object] = {}

    def of(self, schema: Any) -> object:
        if isinstance(schema, str):
            return self._named.get(schema, schema)
        if isinstance(schema, list):
            return "union", tuple(self.of(member) for member in schema)
        kind = schema["type"]
        if kind == "array":
            return "array", self.of(schema["items"])
        if kind == "record":
            of_record: object = ("record", tuple((field["name"], self.of(field["type"])) for field in schema["fields"]))
        elif kind == "enum":
            of_record = ("enum", tuple(schema["symbols"]))
        elif kind == "fixed":
            of_record = ("fixed", schema["size"])
        else:
            return self.of(kind)
        self._named[schema["name"]] = of_record
        return of_record


class PrimaryKeys:
    """The Kafka key of a message by the full primary key, taken out of the change's own bytes.

    Cuts the Avro body of the primary key out of framed changes of one table shape.

    A change's field `key` has the same fields in the same order as the key's schema, so its bytes are the key's. The
    clustering columns are null where there is none: deletions of partitions and ranges, static rows.
    """

    def __init__(self, table: Table, prefix: str, forms: ValueForms = PLAIN_FORMS) -> None:
        schema = without_logical_types(value_schema(table, prefix, forms))
        fields: Any = schema["fields"]
        # A record's fields stand one after another: read with its first fields alone, the rest of the bytes are left.
        self._head = parse_schema({**schema, "fields": fields[:_BEFORE]})
        self._key = parse_schema({**schema, "fields": fields[: _BEFORE + 1]})

    def body(self, message: bytes) -> bytes | None:
        """The key's Avro body; None for a change without a key, a truncate."""
        start = self._end(message, self._head)
        if message[start : start + 1] == _NULL:
            return None
        return message[start + 1 : self._end(message, self._key)]

    @staticmethod
    def _end(message: bytes, schema: Any) -> int:
        buffer = io.BytesIO(message)
        buffer.seek(body_at(message))
        schemaless_reader(buffer, schema, None)
        return buffer.tell()
