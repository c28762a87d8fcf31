"""Cassandra's bytes to the values of the Avro schema and back, plain or in the forms that [avro] chooses.

A type whose form is not the plain one is marked in its schema by `cql.type`: fixed (uuid), bytes (varint), a record
(decimal). Logical types alone change no value. Ours are read as the integers below them, because calendars refuse most
of the values that Cassandra takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final
from uuid import UUID

from tailrace_schemas.avro.names import avro_name
from tailrace_schemas.cql.numeric import integer_text, integer_value, minimal, scaled_text, scaled_value
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import codec
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.forms import ValueForms

Convert = Callable[[object], object]
YEARS: Final[Mapping[str, tuple[int, int]]] = {
    "timestamp": (-62_135_596_800_000, 253_402_300_799_999),
    "date": (-719_162, 2_932_896),
}
"""The years 1 to 9999, in milliseconds and days: Python's readers of logical types raise on any other value, and then
never get past the record."""

Form = Callable[[Any], tuple[object, bool]]
"""A plain value to its form, and whether nothing of it was left out."""


def to_avro(cql_type: CqlType, data: bytes) -> tuple[object, bool]:
    """(value for Avro, whether `to_bytes` gives back exactly these bytes).

    Bytes that are no value of the type give None and False: the caller keeps them in `raw`. So do empty bytes of a type
    that has no empty value.
    """
    coder = codec(cql_type)
    try:
        value = coder.decode(data)
        if value is None:
            return None, False
        exact = coder.gives_back(data, value)
    except DecodeError:
        return None, False
    rename = renaming(cql_type, True)
    return (value if rename is None else rename(value)), exact


def to_bytes(cql_type: CqlType, value: object) -> bytes:
    """The Cassandra bytes of a value that Avro carried."""
    return encoder_of(cql_type)(value)


@cache
def encoder_of(cql_type: CqlType) -> Callable[[object], bytes]:
    """`to_bytes` of one type, for whoever has many values of it: a type's hash takes longer than a number's bytes."""
    rename, encode = renaming(cql_type, False), codec(cql_type).encode
    if rename is None:
        return encode
    return lambda value: encode(rename(value))


@cache
def renaming(cql_type: CqlType, to: bool) -> Convert | None:
    """Renames user type fields between CQL's names and Avro's; None where nothing below has another name."""
    inner = [renaming(arg, to) for arg in cql_type.args]
    kind = cql_type.kind
    if kind == "udt":
        names = [avro_name(field) for field in cql_type.fields]
        if not any(inner) and tuple(names) == cql_type.fields:
            return None
        pairs = list(zip(cql_type.fields, names, strict=True) if to else zip(names, cql_type.fields, strict=True))
        return lambda value: _fields(value, pairs, inner)
    if not any(inner):
        return None
    if kind == "tuple":
        pairs = [(f"f{i}", f"f{i}") for i in range(len(inner))]
        return lambda value: _fields(value, pairs, inner)
    if kind == "map":
        pairs = [("key", "key"), ("value", "value")]
        return lambda value: [_fields(entry, pairs, inner) for entry in _list(value)]
    return lambda value: [_one(item, inner[0]) for item in _list(value)]


def _one(value: object, rename: Convert | None) -> object:
    return value if value is None or rename is None else rename(value)


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(f"a collection's value is a list, not {type(value).__name__}")
    return value


def _fields(value: object, pairs: list[tuple[str, str]], inner: list[Convert | None]) -> object:
    if not isinstance(value, dict):
        raise TypeError(f"a record's value is a dict, not {type(value).__name__}")
    return {new: _one(value.get(old), rename) for (old, new), rename in zip(pairs, inner, strict=True)}


def to_formed(cql_type: CqlType, data: bytes, forms: ValueForms) -> tuple[object, bool]:
    """As `to_avro`, in these forms: a value outside of its form's range is null, and not exact."""
    value, exact = to_avro(cql_type, data)
    form = forming(cql_type, forms)
    if value is None or form is None:
        return value, exact
    value, formed_exactly = form(value)
    return value, exact and formed_exactly


@cache
def forming(cql_type: CqlType, forms: ValueForms) -> Form | None:
    """What brings plain values of a type, with Avro's names, into these forms; None where they are plain there too."""
    kind = cql_type.kind
    if kind in YEARS and forms.timestamps == "logical":
        first, last = YEARS[kind]
        return lambda value: (value, True) if first <= value <= last else (None, False)
    if kind in ("uuid", "timeuuid") and forms.uuids == "fixed":
        return lambda value: (UUID(value).bytes, True)
    if kind == "varint" and forms.decimals == "bytes":
        return lambda value: (minimal(integer_value(value)), True)
    if kind == "decimal" and forms.decimals == "bytes":
        return lambda value: (_scaled(value), True)
    inner = [forming(arg, forms) for arg in cql_type.args]
    if not any(inner):
        return None
    if kind == "map":
        return _each(lambda entry: _members(entry, ("key", "value"), inner))
    if kind == "tuple":
        names = tuple(f"f{index}" for index in range(len(inner)))
        return lambda value: _members(value, names, inner)
    if kind == "udt":
        fields = tuple(map(avro_name, cql_type.fields))
        return lambda value: _members(value, fields, inner)
    return _each(lambda item: _formed(item, inner[0]))


def _scaled(text: str) -> dict[str, object]:
    unscaled, scale = scaled_value(text)
    return {"scale": scale, "value": minimal(unscaled)}


def _formed(value: object, form: Form | None) -> tuple[object, bool]:
    return (value, True) if value is None or form is None else form(value)


def _each(form: Form) -> Form:
    def of(items: Any) -> tuple[object, bool]:
        pairs = [form(item) for item in items]
        return [value for value, _ in pairs], all(is_exact for _, is_exact in pairs)

    return of


def _members(record: Any, names: tuple[str, ...], inner: list[Form | None]) -> tuple[object, bool]:
    pairs = {name: _formed(record.get(name), form) for name, form in zip(names, inner, strict=True)}
    return {name: value for name, (value, _) in pairs.items()}, all(is_exact for _, is_exact in pairs.values())


def without_logical_types(schema: Any) -> Any:
    """The schema for readers and writers that are to see the values that logical types stand on."""
    if isinstance(schema, dict):
        return {name: without_logical_types(value) for name, value in schema.items() if name != "logicalType"}
    return [without_logical_types(item) for item in schema] if isinstance(schema, list) else schema


def plain_of(schema: Any) -> tuple[Any, Convert | None]:
    """The schema with every form a plain one, and what makes plain values of a writer's; None where all of them are."""
    return _Plain().of(schema)


class _Plain:
    """Walks a writer's schema; named types are known from where they are first met."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[Any, Convert | None]] = {}

    def of(self, schema: Any) -> tuple[Any, Convert | None]:
        if isinstance(schema, str):
            return self._named.get(schema, (schema, None))
        if isinstance(schema, list):
            return self._union(schema)
        kind = schema["type"]
        if (convert := _MARKED.get((kind, schema.get("cql.type")))) is not None:
            if "name" in schema:
                self._named[schema["name"]] = "string", convert
            return "string", convert
        if kind == "record":
            return self._record(schema)
        if kind == "array":
            items, convert = self.of(schema["items"])
            return {**schema, "items": items}, None if convert is None else _listed(convert)
        bare = {name: value for name, value in schema.items() if name != "logicalType"}
        return (kind if len(bare) == 1 else bare), None

    def _union(self, schema: list[Any]) -> tuple[Any, Convert | None]:
        """All unions of ours are of null and one type."""
        parts = [self.of(member) for member in schema]
        convert = next((convert for _, convert in parts if convert is not None), None)
        return [member for member, _ in parts], None if convert is None else _optional(convert)

    def _record(self, schema: Any) -> tuple[Any, Convert | None]:
        name = schema["name"]
        self._named[name] = name, None
        fields: list[Any] = []
        converts: dict[str, Convert] = {}
        for field in schema["fields"]:
            of_field, convert = self.of(field["type"])
            fields.append({**field, "type": of_field})
            if convert is not None:
                converts[field["name"]] = convert
        convert = _recorded(converts) if converts else None
        self._named[name] = name, convert
        return {**schema, "fields": fields}, convert


def _optional(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _listed(convert: Convert) -> Convert:
    def of(items: Any) -> object:
        return [convert(item) for item in items]

    return of


def _recorded(converts: Mapping[str, Convert]) -> Convert:
    def of(record: Any) -> object:
        return {name: converts[name](value) if name in converts else value for name, value in record.items()}

    return of


def _uuid_text(value: Any) -> object:
    return str(UUID(bytes=value))


def _varint_text(value: Any) -> object:
    return integer_text(int.from_bytes(value, "big", signed=True))


def _decimal_text(value: Any) -> object:
    return scaled_text(int.from_bytes(value["value"], "big", signed=True), value["scale"])


_MARKED: Final[Mapping[tuple[str, str | None], Convert]] = {
    ("fixed", "uuid"): _uuid_text,
    ("bytes", "varint"): _varint_text,
    ("record", "decimal"): _decimal_text,
}
