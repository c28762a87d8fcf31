"""Avro's values in a message to Cassandra's bytes, by a reader for each type: no object of a value between.

What a reader cannot take raises OtherwiseError: another way decodes that message, and says what is wrong with it. It is
compiled. Types and forms are those of docs/contracts.md section 3, the plain ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i32_be, write_i64_be
from mypy_extensions import i32, i64, u8

from tailrace_schemas.cql.coding import Codec
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import codec
from tailrace_schemas.cql.vint import write_unsigned

_NULL: Final = b"\xff\xff\xff\xff"
_EXPONENT: Final = 0x7F800000
_MANTISSA: Final = 0x007FFFFF
_QUIET: Final = 0x00400000
_NO_DIGIT: Final = 255
_DIGITS: Final = bytes(
    int(chr(code), 16) if chr(code) in "0123456789abcdefABCDEF" else _NO_DIGIT for code in range(256)
)


class OtherwiseError(Exception):
    """These bytes are not for a plan, or are none."""


class MessageCursor:
    """A message and how far it is read. Reading behind its end raises IndexError or OtherwiseError."""

    def __init__(self, data: bytes, offset: i64) -> None:
        self.data = data
        self.offset: i64 = offset
        self.out = BytesWriter()

    def long(self) -> i64:
        """An int or long: seven bits a byte from the lowest, zig-zag (Avro specification, binary encoding)."""
        data, offset = self.data, self.offset
        byte: i64 = data[offset]
        offset += 1
        coded: i64 = byte & 127
        shift: i64 = 7
        while byte & 128:
            byte = data[offset]
            offset += 1
            if shift == 63:
                if byte > 1:
                    raise OtherwiseError
                self.offset = offset
                # The tenth byte is the highest bit of the word.
                half = (coded >> 1) | (byte << 62)
                return ~half if coded & 1 else half
            coded |= (byte & 127) << shift
            shift += 7
        self.offset = offset
        return (coded >> 1) ^ -(coded & 1)

    def present(self) -> bool:
        """The branch of a nullable value: whether the value follows."""
        branch = self.data[self.offset]
        self.offset += 1
        if branch == 0:
            return False
        if branch != 2:
            raise OtherwiseError
        return True

    def flag(self) -> bool:
        """A boolean, which is 0 or 1."""
        byte = self.data[self.offset]
        self.offset += 1
        if byte > 1:
            raise OtherwiseError
        return byte == 1

    def span(self) -> i64:
        """Step over a string or bytes; gives where it begins, and `offset` is where it ends."""
        size = self.long()
        start = self.offset
        if size < 0 or size > len(self.data) - start:
            raise OtherwiseError
        self.offset = start + size
        return start

    def octets(self) -> bytes:
        """A string or bytes, as bytes."""
        start = self.span()
        return self.data[start : self.offset]

    def text(self) -> bytes:
        """A string's bytes, which are UTF-8."""
        start = self.span()
        text = self.data[start : self.offset]
        if not text.isascii():
            _require_utf8(text)
        return text

    def fixed(self, size: i64) -> bytes:
        """So many bytes."""
        start = self.offset
        if size > len(self.data) - start:
            raise OtherwiseError
        self.offset = start + size
        return self.data[start : self.offset]

    def block(self) -> i64:
        """How many items of an array follow in this block; 0: it has ended."""
        count = self.long()
        if count < 0:  # its bytes are counted too, as no writer of ours does
            raise OtherwiseError
        return count


class ValueReader:
    """Reads values of one type that are not null, as Cassandra's bytes."""

    def read(self, cursor: MessageCursor) -> bytes:
        """The bytes of the value at the cursor; raises OtherwiseError or IndexError."""
        raise NotImplementedError


def read_optional(reader: ValueReader, cursor: MessageCursor) -> bytes | None:
    """A nullable value."""
    return reader.read(cursor) if cursor.present() else None


class NoReader(ValueReader):
    """Of values that no plan reads: counters, edits of collections."""

    def read(self, cursor: MessageCursor) -> bytes:  # noqa: ARG002 - as its base has it
        raise OtherwiseError


class _Longs(ValueReader):
    """Integers of 8 bytes."""

    def read(self, cursor: MessageCursor) -> bytes:
        out = cursor.out
        out.truncate(0)
        write_i64_be(out, cursor.long())
        return out.getvalue()


class _Integers(ValueReader):
    """Integers of so many bytes, from -`limit` to below it; `shifted`: zero is in the middle, as of dates."""

    def __init__(self, size: i64, limit: i64, *, shifted: bool = False) -> None:
        self._size: i64 = size
        self._limit: i64 = limit
        self._shifted = shifted

    def read(self, cursor: MessageCursor) -> bytes:
        value = cursor.long()
        size = self._size
        out = cursor.out
        out.truncate(0)
        limit = self._limit
        if value < -limit or value >= limit:
            raise OtherwiseError
        if self._shifted:
            value += -limit if value >= 0 else limit
        if size == 4:
            write_i32_be(out, i32(value))
        else:
            if size == 2:
                out.append(u8((value >> 8) & 255))
            out.append(u8(value & 255))
        return out.getvalue()


class _Floats(ValueReader):
    """IEEE bits, little-endian in Avro."""

    def __init__(self, size: i64) -> None:
        self._size: i64 = size

    def read(self, cursor: MessageCursor) -> bytes:
        offset = cursor.offset
        out = cursor.out
        out.truncate(0)
        if self._size == 8:
            write_i64_be(out, read_i64_le(cursor.data, offset))
        else:
            bits = read_i32_le(cursor.data, offset)
            if bits & _EXPONENT == _EXPONENT and bits & _MANTISSA != 0 and not bits & _QUIET:
                raise OtherwiseError  # a signalling NaN, which comes back quiet from any reader
            write_i32_be(out, bits)
        cursor.offset = offset + self._size
        return out.getvalue()


class _Booleans(ValueReader):
    def read(self, cursor: MessageCursor) -> bytes:
        return b"\x01" if cursor.flag() else b"\x00"


class _Texts(ValueReader):
    """text, and ascii where `only_ascii`."""

    def __init__(self, only_ascii: bool) -> None:
        self._only_ascii = only_ascii

    def read(self, cursor: MessageCursor) -> bytes:
        text = cursor.text()
        if self._only_ascii and not text.isascii():
            raise OtherwiseError
        return text


class _Blobs(ValueReader):
    def read(self, cursor: MessageCursor) -> bytes:
        return cursor.octets()


class _Uuids(ValueReader):
    """Canonical text."""

    def read(self, cursor: MessageCursor) -> bytes:
        start = cursor.span()
        if cursor.offset - start != 36:
            raise OtherwiseError
        data, out = cursor.data, cursor.out
        out.truncate(0)
        index: i64 = 0
        while index < 36:
            if index == 8 or index == 13 or index == 18 or index == 23:
                if data[start + index] != 45:
                    raise OtherwiseError
                index += 1
                continue
            high, low = _DIGITS[data[start + index]], _DIGITS[data[start + index + 1]]
            if high == _NO_DIGIT or low == _NO_DIGIT:
                raise OtherwiseError
            out.append(u8(high * 16 + low))
            index += 2
        return out.getvalue()


class _Words(ValueReader):
    """Types whose values are text: varint, decimal, inet."""

    def __init__(self, coder: Codec) -> None:
        self._coder = coder

    def read(self, cursor: MessageCursor) -> bytes:
        try:
            return self._coder.encode(cursor.text().decode())
        except ValueError:
            raise OtherwiseError from None


class _Durations(ValueReader):
    def __init__(self, coder: Codec) -> None:
        self._coder = coder

    def read(self, cursor: MessageCursor) -> bytes:
        months, days, nanoseconds = cursor.long(), cursor.long(), cursor.long()
        try:
            return self._coder.encode({"months": months, "days": days, "nanoseconds": nanoseconds})
        except ValueError:
            raise OtherwiseError from None


class _Elements(ValueReader):
    """Frozen lists, sets and maps: a count, then each element's size and bytes (ListSerializer, MapSerializer).

    An item is one element, or a map's key and value.
    """

    def __init__(self, readers: list[ValueReader]) -> None:
        self._readers = readers

    def read(self, cursor: MessageCursor) -> bytes:
        count = 0
        parts: list[bytes] = []
        while (items := cursor.block()) > 0:
            count += int(items)
            while items > 0:
                for reader in self._readers:
                    put_element(parts, read_optional(reader, cursor))
                items -= 1
        return count.to_bytes(4, "big") + b"".join(parts)


class _Records(ValueReader):
    """Tuples and frozen user types: each field's size and bytes (TupleType)."""

    def __init__(self, readers: list[ValueReader]) -> None:
        self._readers = readers

    def read(self, cursor: MessageCursor) -> bytes:
        parts: list[bytes] = []
        for reader in self._readers:
            put_element(parts, read_optional(reader, cursor))
        return b"".join(parts)


class _Vectors(ValueReader):
    """Vectors of `dimension` elements, each of `size` bytes or, for None, with its size before it (VectorType)."""

    def __init__(self, reader: ValueReader, size: int | None, dimension: i64) -> None:
        self._reader = reader
        self._size = size
        self._dimension: i64 = dimension

    def read(self, cursor: MessageCursor) -> bytes:
        parts: list[bytes] = []
        while (items := cursor.block()) > 0:
            while items > 0:
                element = read_optional(self._reader, cursor)
                if element is None or (self._size is not None and len(element) != self._size):
                    raise OtherwiseError
                if self._size is None:
                    parts.append(write_unsigned(len(element)))
                parts.append(element)
                items -= 1
        if len(parts) != (self._dimension if self._size is not None else 2 * self._dimension):
            raise OtherwiseError
        return b"".join(parts)


def put_element(parts: list[bytes], element: bytes | None) -> None:
    """An element's size and bytes, or what says that it is null."""
    if element is None:
        parts.append(_NULL)
    else:
        parts.append(len(element).to_bytes(4, "big"))
        parts.append(element)


def reader_of_type(cql_type: CqlType) -> ValueReader:
    """What reads values of a frozen or scalar type."""
    kind = cql_type.kind
    make = _MADE.get(kind)
    if make is not None:
        return make(cql_type)
    readers = [reader_of_type(inner) for inner in cql_type.args]
    if kind in ("list", "set", "map"):
        return _Elements(readers)
    if kind in ("tuple", "udt"):
        return _Records(readers)
    if kind == "vector":
        return _Vectors(readers[0], cql_type.args[0].fixed_size, cql_type.dimension)
    return NoReader()


def _require_utf8(text: bytes) -> None:
    try:
        text.decode()
    except UnicodeDecodeError:
        raise OtherwiseError from None


_MADE: Final[dict[str, Callable[[CqlType], ValueReader]]] = {
    "ascii": lambda _: _Texts(True),
    "text": lambda _: _Texts(False),
    "bigint": lambda _: _Longs(),
    "timestamp": lambda _: _Longs(),
    "time": lambda _: _Longs(),
    "int": lambda _: _Integers(4, 1 << 31),
    "smallint": lambda _: _Integers(2, 1 << 15),
    "tinyint": lambda _: _Integers(1, 1 << 7),
    "date": lambda _: _Integers(4, 1 << 31, shifted=True),
    "blob": lambda _: _Blobs(),
    "custom": lambda _: _Blobs(),
    "boolean": lambda _: _Booleans(),
    "double": lambda _: _Floats(8),
    "float": lambda _: _Floats(4),
    "uuid": lambda _: _Uuids(),
    "timeuuid": lambda _: _Uuids(),
    "varint": lambda of: _Words(codec(of)),
    "decimal": lambda of: _Words(codec(of)),
    "inet": lambda of: _Words(codec(of)),
    "duration": lambda of: _Durations(codec(of)),
}
