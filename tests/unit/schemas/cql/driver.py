"""cassandra-driver's own (de)serializers as an oracle: our types as its types, its values as plain values."""

from __future__ import annotations

import calendar
import datetime
import ipaddress
import struct
import zlib
from decimal import Decimal
from typing import Any
from uuid import UUID

from cassandra import cqltypes, util
from hypothesis import strategies as st

from tailrace_schemas.cql.types import CqlType

_CLASSES = {
    "ascii": "AsciiType",
    "bigint": "LongType",
    "blob": "BytesType",
    "boolean": "BooleanType",
    "date": "SimpleDateType",
    "decimal": "DecimalType",
    "double": "DoubleType",
    "duration": "DurationType",
    "float": "FloatType",
    "inet": "InetAddressType",
    "int": "Int32Type",
    "smallint": "ShortType",
    "text": "UTF8Type",
    "time": "TimeType",
    "timestamp": "DateType",
    "timeuuid": "TimeUUIDType",
    "tinyint": "ByteType",
    "uuid": "UUIDType",
    "varint": "IntegerType",
}
NATIVE = tuple(_CLASSES)
_NANOS_A_DAY = 86_400 * 10**9
PROTOCOL = 5


def driver_type(cql_type: CqlType) -> Any:
    """The driver's class for one of our types."""
    if cql_type.kind in _CLASSES:
        return cqltypes.lookup_casstype(_CLASSES[cql_type.kind])
    args = tuple(driver_type(arg) for arg in cql_type.args)
    match cql_type.kind:
        case "list":
            return cqltypes.ListType.apply_parameters(args)
        case "set":
            return cqltypes.SetType.apply_parameters(args)
        case "map":
            return cqltypes.MapType.apply_parameters(args)
        case "tuple":
            return cqltypes.TupleType.apply_parameters(args)
        case "udt":
            return cqltypes.UserType.make_udt_class("ks", cql_type.name, cql_type.fields, args)
        case "vector":
            return cqltypes.VectorType.apply_parameters((args[0], cql_type.dimension), None)
    raise AssertionError(cql_type)


def to_bytes(cql_type: CqlType, value: object) -> bytes:
    """What the driver writes for one of its values."""
    data = driver_type(cql_type).to_binary(value, PROTOCOL)
    assert isinstance(data, bytes)
    return data


def from_bytes(cql_type: CqlType, data: bytes) -> object:
    """The plain value of what the driver reads."""
    return plain(cql_type, driver_type(cql_type).from_binary(data, PROTOCOL))


def plain(cql_type: CqlType, value: Any) -> object:
    """A value of the driver as the plain value of the same type."""
    if value is None:
        return None
    args = cql_type.args
    match cql_type.kind:
        case "uuid" | "timeuuid" | "varint" | "decimal":
            return str(value)
        case "date":
            return value.days_from_epoch
        case "time":
            return value.nanosecond_time
        case "timestamp":
            return calendar.timegm(value.utctimetuple()) * 1000 + value.microsecond // 1000
        case "duration":
            return {"months": value.months, "days": value.days, "nanoseconds": value.nanoseconds}
        case "float":
            return struct.unpack(">f", struct.pack(">f", value))[0]
        case "inet":
            return ipaddress.ip_address(value).packed
        case "list" | "vector":
            return [plain(args[0], element) for element in value]
        case "set":
            return sorted((plain(args[0], element) for element in value), key=repr)
        case "map":
            return [{"key": plain(args[0], key), "value": plain(args[1], item)} for key, item in value.items()]
        case "tuple" | "udt":
            names = cql_type.fields or tuple(f"f{index}" for index in range(len(args)))
            return {name: plain(arg, field) for name, arg, field in zip(names, args, value, strict=True)}
    return value


def comparable(cql_type: CqlType, value: Any) -> object:
    """Our plain value in the shape of `plain`.

    Addresses are bytes there, since the driver prints some otherwise; sets are sorted, since it does not keep the
    wire's order.
    """
    args = cql_type.args
    if value is None:
        return None
    match cql_type.kind:
        case "inet":
            return ipaddress.ip_address(value).packed
        case "list" | "vector":
            return [comparable(args[0], element) for element in value]
        case "set":
            return sorted((comparable(args[0], element) for element in value), key=repr)
        case "map":
            return [{"key": comparable(args[0], e["key"]), "value": comparable(args[1], e["value"])} for e in value]
        case "tuple" | "udt":
            return {name: comparable(arg, value[name]) for name, arg in zip(value, args, strict=True)}
    return value


def types(depth: int = 2) -> st.SearchStrategy[CqlType]:
    """Frozen types, nested up to `depth` deep."""
    native = st.sampled_from(NATIVE).map(CqlType)
    # The driver's sets and maps hash their elements and keys; CQL has no durations there either.
    hashed = st.sampled_from([kind for kind in NATIVE if kind != "duration"]).map(CqlType)
    if depth == 0:
        return native
    inner = types(depth - 1)
    several = st.lists(inner, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        native,
        inner.map(lambda t: CqlType("list", (t,), frozen=True)),
        hashed.map(lambda t: CqlType("set", (t,), frozen=True)),
        st.tuples(hashed, inner).map(lambda pair: CqlType("map", pair, frozen=True)),
        several.map(lambda args: CqlType("tuple", args, frozen=True)),
        several.map(_user_type),
        st.tuples(inner, st.integers(1, 3)).map(lambda pair: CqlType("vector", (pair[0],), dimension=pair[1])),
    )


def _user_type(args: tuple[CqlType, ...]) -> CqlType:
    # Named by its fields, so that no two user types share a name.
    name = f"u{zlib.crc32(repr(args).encode()):08x}"
    return CqlType("udt", args, frozen=True, name=name, fields=tuple(f"c{index}" for index in range(len(args))))


def values(cql_type: CqlType) -> st.SearchStrategy[Any]:
    """Values of a type as the driver takes them; fields of tuples and user types may be None."""
    args = cql_type.args
    match cql_type.kind:
        case "list":
            return st.lists(values(args[0]), max_size=3)
        case "set":
            return st.lists(values(args[0]), max_size=3, unique=True).map(set)
        case "map":
            return st.dictionaries(values(args[0]), values(args[1]), max_size=3)
        case "tuple" | "udt":
            return st.tuples(*(st.none() | values(arg) for arg in args))
        case "vector":
            return st.lists(values(args[0]), min_size=cql_type.dimension, max_size=cql_type.dimension)
    return _NATIVE_VALUES[cql_type.kind]


def typed_values(depth: int = 2) -> st.SearchStrategy[tuple[CqlType, Any]]:
    """A type and a value of it."""
    return types(depth).flatmap(lambda t: st.tuples(st.just(t), values(t)))


def _signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def _duration(months: int, days: int, nanoseconds: int, sign: int) -> util.Duration:
    return util.Duration(sign * months, sign * days, sign * nanoseconds)


def _millis(value: datetime.datetime) -> datetime.datetime:
    return value.replace(microsecond=value.microsecond // 1000 * 1000)


_I31, _I63 = st.integers(0, (1 << 31) - 1), st.integers(0, (1 << 63) - 1)
_NATIVE_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "ascii": st.text(st.characters(max_codepoint=127), max_size=5),
    "bigint": _signed(64),
    "blob": st.binary(max_size=5),
    "boolean": st.booleans(),
    "date": _signed(32).map(util.Date),
    "decimal": st.builds(lambda u, s: Decimal(u).scaleb(-s), st.integers(-(10**20), 10**20), st.integers(-30, 30)),
    "double": st.floats(allow_nan=False),
    "duration": st.builds(_duration, _I31, _I31, _I63, st.sampled_from((1, -1))),
    "float": st.floats(allow_nan=False, width=32),
    "inet": st.ip_addresses().map(str),
    "int": _signed(32),
    "smallint": _signed(16),
    "text": st.text(max_size=5),
    "time": st.integers(0, _NANOS_A_DAY - 1).map(util.Time),
    # Within what the driver keeps exactly as float seconds.
    "timestamp": st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1)).map(_millis),  # noqa: DTZ001 - the driver's are naive
    "timeuuid": st.uuids().map(lambda u: UUID(bytes=u.bytes[:6] + bytes((0x10 | u.bytes[6] & 15,)) + u.bytes[7:])),
    "tinyint": _signed(8),
    "uuid": st.uuids(),
    "varint": st.integers(-(1 << 200), 1 << 200),
}
