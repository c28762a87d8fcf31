"""Arrow types of a table's changes, for Parquet: the record of docs/contracts.md 3, columns in their exact types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from tailrace_schemas.avro.names import avro_name, bound_name
from tailrace_schemas.cql.types import CqlType, require_leaves
from tailrace_schemas.table import Column, Table

_TIMES: Final[Mapping[str, Any]] = {
    "timestamp": pa.timestamp("ms", "UTC"),
    "date": pa.date32(),
    "time": pa.time64("ns"),
}
_PLAIN_TIMES: Final[Mapping[str, Any]] = {"timestamp": pa.int64(), "date": pa.int32(), "time": pa.int64()}
_SCALARS: Final[Mapping[str, Any]] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "text": pa.string(),
    "ascii": pa.string(),
    "uuid": pa.string(),
    "timeuuid": pa.string(),
    "inet": pa.string(),
    "varint": pa.string(),
    "decimal": pa.string(),
    "blob": pa.binary(),
    "custom": pa.binary(),
    "empty": pa.binary(),
    "duration": pa.struct([("months", pa.int32()), ("days", pa.int32()), ("nanoseconds", pa.int64())]),
    "counter": pa.list_(pa.struct([("id", pa.binary(16)), ("clock", pa.int64()), ("count", pa.int64())])),
}
_CELL: Final = pa.struct(
    [("column", pa.string()), ("path", pa.binary()), ("written", pa.int64()), ("ttl", pa.int32()),
     ("expires", pa.int64())]
)  # fmt: skip
_RAW: Final = pa.struct(
    [("column", pa.string()), ("path", pa.binary()), ("where", pa.string()), ("bytes", pa.binary())]
)  # fmt: skip
_SOURCE: Final = pa.struct(
    [("host", pa.string()), ("datacenter", pa.string()), ("epoch", pa.int32()), ("segment", pa.int64()),
     ("offset", pa.int64()), ("index", pa.int32()), ("count", pa.int32()), ("origin", pa.string()),
     ("durable", pa.bool_()), ("seen", pa.int64()), ("flags", pa.int32())]
)  # fmt: skip
PLACE: Final = (
    ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("schema", pa.string()),
    ("generation", pa.int64()), ("stream_id", pa.string()),
)  # fmt: skip


def arrow_schema(table: Table, *, times: bool = True) -> Any:
    """The pyarrow Schema of a definition's changes: place and stream, then the record.

    Timestamps, dates and times have types of their own; without `times` they are the numbers that the record has.
    `columns` is left out where there are none: Parquet has no empty group. Raises UnsupportedError for types of more
    than 10,000 values in one another: no format has user types that stand once.
    """
    types = _Types(_TIMES if times else _PLAIN_TIMES)
    bound = pa.struct(
        [*types.named(table.clustering, bound_name), pa.field("count", pa.int32()), pa.field("inclusive", pa.bool_())]
    )
    columns = [pa.field(avro_name(column.name), types.column(column)) for column in table.columns]
    fields = [
        *PLACE,
        ("op", pa.string()),
        ("token", pa.int64()),
        ("written", pa.int64()),
        ("ttl", pa.int32()),
        ("expires", pa.int64()),
        ("digest", pa.binary(16)),
        ("key", pa.struct(types.named(table.key))),
        *([("columns", pa.struct(columns))] if columns else []),
        ("deleted", pa.list_(pa.string())),
        ("raw", pa.list_(_RAW)),
        ("cells", pa.list_(_CELL)),
        ("range", pa.struct([("start", bound), ("end", bound)])),
        ("source", _SOURCE),
    ]
    return pa.schema(fields)


def value_type(cql_type: CqlType) -> Any:
    """The Arrow type of a whole value, as SELECT gives it: a collection is one, and a counter its total.

    Raises UnsupportedError where it would be too large.
    """
    require_leaves(cql_type)
    return pa.int64() if cql_type.kind == "counter" else _Types(_TIMES).value(cql_type)


class _Types:
    """Arrow's types of CQL's, shaped as their Avro values are."""

    def __init__(self, times: Mapping[str, Any]) -> None:
        self._scalars = {**_SCALARS, **times}

    def named(self, columns: Sequence[Column], name_of: Callable[[str], str] = avro_name) -> list[Any]:
        for column in columns:
            require_leaves(column.type)
        return [pa.field(name_of(column.name), self.value(column.type)) for column in columns]

    def value(self, cql_type: CqlType) -> Any:
        match cql_type.kind:
            case "list" | "set" | "vector":
                return pa.list_(self.value(cql_type.args[0]))
            case "map":
                key, value = map(self.value, cql_type.args)
                return pa.list_(pa.struct([("key", key), ("value", value)]))
            case "tuple":
                return pa.struct([(f"f{index}", self.value(arg)) for index, arg in enumerate(cql_type.args)])
            case "udt":
                pairs = zip(cql_type.fields, cql_type.args, strict=True)
                return pa.struct([(avro_name(name), self.value(arg)) for name, arg in pairs])
        return self._scalars[cql_type.kind]

    def column(self, column: Column) -> Any:
        """A column's type; of one that is kept cell by cell, that of its edit."""
        cql_type = column.type
        require_leaves(cql_type)
        if not cql_type.multicell:
            return self.value(cql_type)
        if cql_type.kind == "udt":
            return pa.struct(
                [("deleted_at", pa.int64()), ("set", self.value(cql_type)), ("removed", pa.list_(pa.string()))]
            )
        path = ("path", pa.binary())
        key = [("key", self.value(cql_type.args[0]))] if cql_type.kind != "list" else []
        value = [("value", self.value(cql_type.args[-1]))] if cql_type.kind != "set" else []
        return pa.struct(
            [
                ("deleted_at", pa.int64()),
                ("set", pa.list_(pa.struct([path, *key, *value]))),
                ("removed", pa.list_(pa.struct([path, *key]))),
            ]
        )
