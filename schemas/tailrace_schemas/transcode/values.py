"""Values of each CQL type, from Cassandra's bytes to Avro's: what `avro.convert` says, without the object between.

The writer of a column is chosen once, by its type and the forms, so that no value asks for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_f32_le,
    write_f64_le,
    write_i32_le,
    write_i64_le,
)
from mypy_extensions import i64, u8

from tailrace_schemas.avro.convert import YEARS, forming, to_avro, to_formed
from tailrace_schemas.avro.names import avro_name
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.forms import ValueForms
from tailrace_schemas.transcode.primitives import copy_span, is_ascii, write_long, write_span, write_text

ABSENT: Final = 0
"""The branch of a nullable field that is null, as its byte."""
PRESENT: Final = 2
"""The other branch."""

_HEX: Final = b"0123456789abcdef"
_EXPONENT: Final = 0x7F800000
_MANTISSA: Final = 0x007FFFFF
_QUIET: Final = 0x00400000


class ValueWriter:
    """Writes values of one type as a nullable Avro field: the union's branch, then the value."""

    def write(self, out: BytesWriter, data: bytes, start: i64, end: i64) -> bool:
        """Append the value that stands in `data` from start to end.

        False when these bytes would not come back from what was written: no value of the type, or another form of
        one. Then null was written, or what is nearest, and the caller keeps the bytes in `raw`.
        """
        raise NotImplementedError


class IntegerWriter(ValueWriter):
    """Integers of 1, 2, 4 or 8 bytes; `zero` is what stands for 0 (2^31 for date)."""

    def __init__(self, size: i64, zero: i64 = 0) -> None:
        self._size: i64 = size
        self._zero: i64 = zero

    def write(self, out: BytesWriter, data: bytes, start: i64, end: i64) -> bool:
        size = self._size
        if end - start != size:
            out.append(u8(ABSENT))
            return False
        value: i64
        if size == 8:
            value = read_i64_be(data, start)
        elif size == 4:
            value = i64(read_i32_be(data, start))
        elif size == 2:
            value = i64(read_i16_be(data, start))
        else:
            value = data[start]
            if value > 127:
                value -= 256
        if self._zero:
            value = (value & 0xFFFFFFFF) - self._zero
        out.append(u8(PRESENT))
        write_long(out, value)
        return True


class CalendarWriter(IntegerWriter):
    """timestamp and date as logical types: null outside of the years that their readers have."""

    def __init__(self, size: i64, zero: i64, first: i64, last: i64) -> None:
        super().__init__(size, zero)
        self._first: i64 = first
        self._last: i64 = last

    def write(self, out: BytesWriter, data: bytes, start: i64, end: i64) -> bool:
        size = self._size
        value: i64
        if end - start != size:
            value = self._first - 1
        elif size == 8:
            value = read_i64_be(data, start)
        else:
            value = (i64(read_i32_be(data, start)) & 0xFFFFFFFF) - self._zero
        if value < self._first or value > self._last:
            out.append(u8(ABSENT))
            return False
        out.append(u8(PRESENT))
        write_long(out, value)
        return True


class FloatWriter(ValueWriter):
    """float and double: IEEE bits, little-endian in Avro. A signalling float NaN comes back quiet from any reader."""

    def __init__(self, size: i64) -> None:
        self._size: i64 = size

    def write(self, out: BytesWriter, data: bytes, start: i64, end: i64) -> bool:
        size = self._size
        if end - start != size:
            out.append(u8(ABSENT))
            return False
        out.append(u8(PRESENT))
        if size == 8:
            write_i64_le(out, read_i64_be(data, start))
            return True
        bits = read_i32_be(data, start)
        signalling = bits & _EXPONENT == _EXPONENT and bits & _MANTISSA != 0 and not bits & _QUIET
        write_i32_le(out, bits | _QUIET if signalling else bits)
        return not signalling


class BooleanWriter(ValueWriter):
    """boolean: any byte but 0 is true."""

    def write(self, out: BytesWriter, data: bytes, start: i64, end: i64) -> bool:
        if end - start != 1:
            out.append(u8(ABSENT))
            return False
        out.append(u8(PRESENT))
        byte = data[start]
        out.append(u8(1 if byte else 0))
        return byte < 2


class TextWriter(ValueWriter):
    """text, and ascii where `only_ascii`."""

    def __init__(self, only_ascii: bool) -> None:
        self._only_ascii = only_ascii

    def write(self, out: BytesWriter, data: bytes, start: i64, end: i64) -> bool:
        if not is_ascii(data, start, end) and (self._only_ascii or not _is_utf8(data[start:end])):
            out.append(u8(ABSENT))
            return False
        out.append(u8(PRESENT))
        write_span(out, data, start, end)
        return True


class BlobWriter(ValueWriter):
    """blob, and every type that is not known."""

    def write(self, out: BytesWriter, data: bytes, start: i64, end: i64) -> bool:
        out.append(u8(PRESENT))
        write_span(out, data, start, end)
        return True


class UuidWriter(ValueWriter):
    """uuid and timeuuid, as canonical text."""

    def write(self, out: BytesWriter, data: bytes, start: i64, end: i64) -> bool:
        if end - start != 16:
            out.append(u8(ABSENT))
            return False
        out.append(u8(PRESENT))
        write_long(out, 36)
        index: i64 = 0
        while index < 16:
            if index == 4 or index == 6 or index == 8 or index == 10:
                out.append(u8(45))
            byte: i64 = data[start + index]
            out.append(_HEX[byte >> 4])
            out.append(_HEX[byte & 15])
            index += 1
        return True


class FixedUuidWriter(ValueWriter):
    """uuid and timeuuid, as their 16 bytes."""

    def write(self, out: BytesWriter, data: bytes, start: i64, end: i64) -> bool:
        if end - start != 16:
            out.append(u8(ABSENT))
            return False
        out.append(u8(PRESENT))
        copy_span(out, data, start, end)
        return True


class VarintWriter(ValueWriter):
    """varint, as the shortest bytes of its two's complement, which Cassandra's need not be."""

    def write(self, out: BytesWriter, data: bytes, start: i64, end: i64) -> bool:
        if end == start:
            out.append(u8(ABSENT))
            return False
        first = _first_byte(data, start, end)
        out.append(u8(PRESENT))
        write_span(out, data, first, end)
        return first == start


class DecimalWriter(ValueWriter):
    """decimal: its scale, then as a varint its unscaled value."""

    def write(self, out: BytesWriter, data: bytes, start: i64, end: i64) -> bool:
        if end - start < 5:
            out.append(u8(ABSENT))
            return False
        first = _first_byte(data, start + 4, end)
        out.append(u8(PRESENT))
        write_long(out, i64(read_i32_be(data, start)))
        write_span(out, data, first, end)
        return first == start + 4


def _first_byte(data: bytes, start: i64, end: i64) -> i64:
    """Where the shortest two's complement of a number begins (BigInteger.toByteArray)."""
    offset = start
    while end - offset > 1:
        byte: i64 = data[offset]
        sign: i64 = data[offset + 1] & 128
        if not (byte == 0 and sign == 0) and not (byte == 255 and sign == 128):
            break
        offset += 1
    return offset


class ObjectWriter(ValueWriter):
    """Types whose form is made of Python objects: varint, decimal, inet, duration, frozen collections, tuples."""

    def __init__(self, cql_type: CqlType) -> None:
        self._type = cql_type

    def write(self, out: BytesWriter, data: bytes, start: i64, end: i64) -> bool:
        value, exact = to_avro(self._type, data[start:end])
        write_object(out, self._type, value)
        return exact


class FormedWriter(ValueWriter):
    """As `ObjectWriter`, of values with parts that are not in their plain form."""

    def __init__(self, cql_type: CqlType, forms: ValueForms) -> None:
        self._type = cql_type
        self._forms = forms

    def write(self, out: BytesWriter, data: bytes, start: i64, end: i64) -> bool:
        value, exact = to_formed(self._type, data[start:end], self._forms)
        write_object(out, self._type, value)
        return exact


def write_object(out: BytesWriter, cql_type: CqlType, value: Any) -> None:
    """A value as `avro.convert.to_formed` gives it, as a nullable field."""
    if value is None:
        out.append(u8(ABSENT))
        return
    out.append(u8(PRESENT))
    kind = cql_type.kind
    if kind in _LONGS:
        write_long(out, value)
    elif kind in _TEXTS:
        if isinstance(value, str):
            write_text(out, value.encode())
        else:
            _write_formed(out, kind, value)
    elif kind in ("list", "set", "vector"):
        _write_items(out, cql_type.args[0], value)
    elif kind == "map":
        _write_entries(out, cql_type, value)
    elif kind in ("tuple", "udt"):
        for name, arg in zip(_field_names(cql_type), cql_type.args, strict=True):
            write_object(out, arg, value.get(name))
    else:
        _write_other(out, kind, value)


def _write_formed(out: BytesWriter, kind: str, value: Any) -> None:
    """uuids as fixed, varint and decimal as bytes."""
    if kind == "decimal":
        write_long(out, value["scale"])
        write_text(out, value["value"])
    elif kind == "varint":
        write_text(out, value)
    else:
        out.write(value)


def _write_items(out: BytesWriter, item_type: CqlType, items: Any) -> None:
    if items:
        write_long(out, len(items))
        for item in items:
            write_object(out, item_type, item)
    write_long(out, 0)


def _write_entries(out: BytesWriter, cql_type: CqlType, entries: Any) -> None:
    key, value = cql_type.args
    if entries:
        write_long(out, len(entries))
        for entry in entries:
            write_object(out, key, entry["key"])
            write_object(out, value, entry["value"])
    write_long(out, 0)


def _write_other(out: BytesWriter, kind: str, value: Any) -> None:
    if kind == "boolean":
        out.append(u8(1 if value else 0))
    elif kind == "float":
        write_f32_le(out, value)
    elif kind == "double":
        write_f64_le(out, value)
    elif kind == "duration":
        for unit in ("months", "days", "nanoseconds"):
            write_long(out, value[unit])
    elif kind == "counter":
        if value:
            write_long(out, len(value))
            for shard in value:
                out.write(shard["id"])
                write_long(out, shard["clock"])
                write_long(out, shard["count"])
        write_long(out, 0)
    else:
        write_text(out, value)


_LONGS: Final = frozenset({"bigint", "date", "int", "smallint", "time", "timestamp", "tinyint"})
_TEXTS: Final = frozenset({"ascii", "decimal", "inet", "text", "timeuuid", "uuid", "varint"})
_NATIVE: Final[Mapping[str, ValueWriter]] = {
    "ascii": TextWriter(True),
    "bigint": IntegerWriter(8),
    "blob": BlobWriter(),
    "boolean": BooleanWriter(),
    "custom": BlobWriter(),
    "date": IntegerWriter(4, 1 << 31),
    "double": FloatWriter(8),
    "float": FloatWriter(4),
    "int": IntegerWriter(4),
    "smallint": IntegerWriter(2),
    "text": TextWriter(False),
    "time": IntegerWriter(8),
    "timestamp": IntegerWriter(8),
    "timeuuid": UuidWriter(),
    "tinyint": IntegerWriter(1),
    "uuid": UuidWriter(),
}
_FORMED: Final[Mapping[str, ValueWriter]] = {
    "decimal": DecimalWriter(),
    "timeuuid": FixedUuidWriter(),
    "uuid": FixedUuidWriter(),
    "varint": VarintWriter(),
}


def writer_of(cql_type: CqlType, forms: ValueForms) -> ValueWriter:
    """What writes values of a type in these forms, of a multi-cell one in its frozen form."""
    kind = cql_type.kind
    if forming(cql_type, forms) is None:
        native = _NATIVE.get(kind)
        return ObjectWriter(cql_type) if native is None else native
    if kind in YEARS:
        first, last = YEARS[kind]
        return CalendarWriter(8, 0, first, last) if kind == "timestamp" else CalendarWriter(4, 1 << 31, first, last)
    formed = _FORMED.get(kind)
    return FormedWriter(cql_type, forms) if formed is None else formed


@lru_cache(maxsize=4096)
def _field_names(cql_type: CqlType) -> tuple[str, ...]:
    if cql_type.kind == "udt":
        return tuple(map(avro_name, cql_type.fields))
    return tuple(f"f{index}" for index in range(len(cql_type.args)))


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
