"""Codecs of frozen collections, tuples, user types and vectors, made of their elements' codecs."""

from __future__ import annotations

from struct import Struct

from tailrace_schemas.cql.coding import Codec, wrong_size, wrong_value
from tailrace_schemas.cql.vint import read_unsigned, write_unsigned
from tailrace_schemas.errors import CorruptError, TruncatedError

_NULL = b"\xff\xff\xff\xff"


def read_element(data: bytes, offset: int) -> tuple[bytes | None, int]:
    """(element or None for null, offset behind it) of `i32 length, bytes`; any negative length is null.

    CollectionSerializer.readValue, TupleType.split. Raises TruncatedError.
    """
    start = offset + 4
    if start > len(data):
        raise TruncatedError("an element's length is cut", offset=offset)
    size = int.from_bytes(data[offset:start], "big", signed=True)
    if size < 0:
        return None, start
    end = start + size
    if end > len(data):
        raise TruncatedError(f"an element of {size} bytes ends after {len(data) - start}", offset=offset)
    return data[start:end], end


def read_count(data: bytes, per_entry: int) -> int:
    """The number of entries at the head of a frozen collection; each takes `per_entry` bytes or more.

    Raises TruncatedError where so many cannot follow, CorruptError for a negative number.
    """
    if len(data) < 4:
        raise TruncatedError(f"a collection has 4 bytes or more, not {len(data)}")
    count = int.from_bytes(data[:4], "big", signed=True)
    if count < 0:
        raise CorruptError(f"a collection of {count} entries")
    if count * per_entry > len(data) - 4:
        raise TruncatedError(f"a collection of {count} entries in {len(data)} bytes")
    return count


def expect_end(kind: str, data: bytes, offset: int) -> None:
    """Raises CorruptError where bytes are left behind the value."""
    if offset != len(data):
        raise CorruptError(f"{len(data) - offset} bytes after a {kind}", offset=offset)


class ListCodec(Codec):
    """A frozen list or set, in wire order: i32 count, then elements (ListSerializer, SetSerializer)."""

    def __init__(self, kind: str, element: Codec) -> None:
        super().__init__(exact=False)
        self.kind = kind
        self._element = element

    def decode(self, data: bytes) -> object:
        if not data:
            return None
        decode = self._element.decode
        values: list[object] = []
        offset = 4
        for _ in range(read_count(data, 4)):
            element, offset = read_element(data, offset)
            values.append(None if element is None else decode(element))
        expect_end(self.kind, data, offset)
        return values

    def encode(self, value: object) -> bytes:
        if value is None:
            return b""
        if not isinstance(value, list | tuple):
            raise wrong_value(self.kind, "a list", value)
        parts = [len(value).to_bytes(4, "big")]
        for element in value:
            _append(parts, self._element, element)
        return b"".join(parts)


class MapCodec(Codec):
    """A frozen map as [{"key": ..., "value": ...}] in wire order (MapSerializer)."""

    def __init__(self, key: Codec, value: Codec) -> None:
        super().__init__(exact=False)
        self._key = key
        self._value = value

    def decode(self, data: bytes) -> object:
        if not data:
            return None
        entries: list[object] = []
        offset = 4
        for _ in range(read_count(data, 8)):
            key, offset = read_element(data, offset)
            value, offset = read_element(data, offset)
            entries.append(
                {
                    "key": None if key is None else self._key.decode(key),
                    "value": None if value is None else self._value.decode(value),
                }
            )
        expect_end("map", data, offset)
        return entries

    def encode(self, value: object) -> bytes:
        if value is None:
            return b""
        if not isinstance(value, list | tuple):
            raise wrong_value("map", "a list of entries", value)
        parts = [len(value).to_bytes(4, "big")]
        for entry in value:
            if not isinstance(entry, dict) or entry.keys() != {"key", "value"}:
                raise wrong_value("map", "entries of key and value", entry)
            _append(parts, self._key, entry["key"])
            _append(parts, self._value, entry["value"])
        return b"".join(parts)


class RecordCodec(Codec):
    """A tuple ({"f0": ..., "f1": ...}) or frozen user type ({field: ...}); fields missing at the end are None.

    TupleType.split: a value written before a field was added is shorter, one with more fields is corrupt.
    """

    def __init__(self, kind: str, names: tuple[str, ...], elements: tuple[Codec, ...]) -> None:
        super().__init__(exact=False)
        self.kind = kind
        self._names = names
        self._elements = elements

    def decode(self, data: bytes) -> object:
        if not data:
            return None
        values: dict[str, object] = dict.fromkeys(self._names)
        offset = 0
        for name, element in zip(self._names, self._elements, strict=True):
            if offset == len(data):
                break
            field, offset = read_element(data, offset)
            if field is not None:
                values[name] = element.decode(field)
        expect_end(self.kind, data, offset)
        return values

    def encode(self, value: object) -> bytes:
        if value is None:
            return b""
        if not isinstance(value, dict) or not value.keys() <= set(self._names):
            raise wrong_value(self.kind, "a dict of its fields", value)
        parts: list[bytes] = []
        for name, element in zip(self._names, self._elements, strict=True):
            _append(parts, element, value.get(name))
        return b"".join(parts)


class VectorCodec(Codec):
    """A vector whose elements all have `size` bytes: `dimension` elements without lengths (FixedLengthSerializer).

    `code` is the elements' struct code, where all of them can be read at once.
    """

    def __init__(self, element: Codec, size: int, dimension: int, code: str) -> None:
        super().__init__(exact=element.exact)
        self._element = element
        self._size = size
        self._dimension = dimension
        self._struct = Struct(f">{dimension}{code}") if code else None

    def decode(self, data: bytes) -> object:
        if not data:
            return None
        if len(data) != self._size * self._dimension:
            raise wrong_size("vector", self._size * self._dimension, len(data))
        if self._struct is not None:
            return list(self._struct.unpack(data))
        decode, size = self._element.decode, self._size
        return [decode(data[offset : offset + size]) for offset in range(0, len(data), size)]

    def encode(self, value: object) -> bytes:
        if value is None:
            return b""
        elements = _vector_elements(self._element, self._dimension, value)
        if any(len(element) != self._size for element in elements):
            raise wrong_value("vector", "elements that are not null", value)
        return b"".join(elements)


class VariableVectorCodec(Codec):
    """A vector of elements without a fixed size, each with a vint length (VectorType.VariableLengthSerializer)."""

    def __init__(self, element: Codec, dimension: int) -> None:
        super().__init__(exact=False)
        self._element = element
        self._dimension = dimension

    def decode(self, data: bytes) -> object:
        if not data:
            return None
        if len(data) < self._dimension:
            raise TruncatedError(f"a vector of {self._dimension} elements in {len(data)} bytes")
        values: list[object] = []
        offset = 0
        for _ in range(self._dimension):
            element, offset = read_vector_element(data, offset)
            values.append(self._element.decode(element))
        expect_end("vector", data, offset)
        return values

    def encode(self, value: object) -> bytes:
        if value is None:
            return b""
        elements = _vector_elements(self._element, self._dimension, value)
        return b"".join(write_unsigned(len(element)) + element for element in elements)


def read_vector_element(data: bytes, offset: int) -> tuple[bytes, int]:
    """(element, offset behind it) of `vint length, bytes`; raises TruncatedError."""
    size, start = read_unsigned(data, offset)
    end = start + size
    if end > len(data):
        raise TruncatedError(f"an element of {size} bytes ends after {len(data) - start}", offset=offset)
    return data[start:end], end


def _vector_elements(element: Codec, dimension: int, value: object) -> list[bytes]:
    if not isinstance(value, list | tuple) or len(value) != dimension:
        raise wrong_value("vector", f"a list of {dimension} elements", value)
    return [element.encode(item) for item in value]


def _append(parts: list[bytes], element: Codec, value: object) -> None:
    if value is None:
        parts.append(_NULL)
    else:
        data = element.encode(value)
        parts.append(len(data).to_bytes(4, "big"))
        parts.append(data)
