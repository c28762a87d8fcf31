"""Codecs of text, blobs, uuids, addresses, durations and counter contexts."""

from __future__ import annotations

import ipaddress
from typing import Final

from tailrace_schemas.cql.coding import Codec, wrong_size, wrong_value
from tailrace_schemas.cql.vint import read_signed, write_signed
from tailrace_schemas.errors import CorruptError, TruncatedError

_SHARD: Final = 32
_NO_UNIT: Final = 1 << 64  # too large for any unit of a duration
_MAPPED: Final = bytes(10) + b"\xff\xff"


class TextCodec(Codec):
    """text (UTF8Type) or ascii (AsciiType) as str.

    Cassandra lets surrogates and the two-byte NUL pass as UTF-8; here they are corrupt, since no str has such bytes.
    """

    def __init__(self, kind: str, encoding: str) -> None:
        super().__init__(exact=True)
        self.kind = kind
        self._encoding = encoding

    def decode(self, data: bytes) -> object:
        try:
            return data.decode(self._encoding)
        except UnicodeDecodeError as error:
            raise CorruptError(f"{self.kind} is not {self._encoding} at byte {error.start}") from None

    def encode(self, value: object) -> bytes:
        if not isinstance(value, str):
            raise wrong_value(self.kind, "a str", value)
        try:
            return value.encode(self._encoding)
        except UnicodeEncodeError:
            raise wrong_value(self.kind, f"{self._encoding} characters", value) from None


class BytesCodec(Codec):
    """blob, custom and unknown types: the bytes themselves (BytesType)."""

    def __init__(self, kind: str) -> None:
        super().__init__(exact=True)
        self.kind = kind

    def decode(self, data: bytes) -> object:
        return data

    def encode(self, value: object) -> bytes:
        if not isinstance(value, bytes):
            raise wrong_value(self.kind, "bytes", value)
        return value


class EmptyCodec(Codec):
    """The type without values: no bytes, read as b"" (EmptyType)."""

    def __init__(self) -> None:
        super().__init__(exact=True)

    def decode(self, data: bytes) -> object:
        if data:
            raise wrong_size("empty", 0, len(data))
        return b""

    def encode(self, value: object) -> bytes:
        if value is not None and value != b"":
            raise wrong_value("empty", "b''", value)
        return b""


class UuidCodec(Codec):
    """uuid and timeuuid as lower-case canonical text; any version, as Cassandra's bytes have it (UUIDType)."""

    def __init__(self, kind: str) -> None:
        super().__init__(exact=True)
        self.kind = kind

    def decode(self, data: bytes) -> object:
        if len(data) != 16:
            if not data:
                return None
            raise wrong_size(self.kind, 16, len(data))
        digits = data.hex()
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def encode(self, value: object) -> bytes:
        if value is None:
            return b""
        if isinstance(value, str) and len(value) == 36 and value[8] == value[13] == value[18] == value[23] == "-":
            try:
                data = bytes.fromhex(value.replace("-", ""))
            except ValueError:
                data = b""
            # fromhex skips spaces, so with any character but the digits there are fewer bytes.
            if len(data) == 16:
                return data
        raise wrong_value(self.kind, "canonical text", value)


class InetCodec(Codec):
    """An IPv4 or IPv6 address as canonical text (InetAddressType)."""

    def __init__(self) -> None:
        super().__init__(exact=True)

    def decode(self, data: bytes) -> object:
        if len(data) not in (4, 16):
            if not data:
                return None
            raise wrong_size("inet", 4 if len(data) < 4 else 16, len(data))
        return address_text(data)

    def encode(self, value: object) -> bytes:
        if value is None:
            return b""
        if not isinstance(value, str):
            raise wrong_value("inet", "an address as text", value)
        return address_bytes(value)


class DurationCodec(Codec):
    """Months, days and nanoseconds, all of one sign: three zig-zag vints (DurationType, cql3.Duration).

    Not exact: vints need not be the shortest.
    """

    def __init__(self) -> None:
        super().__init__(exact=False)

    def decode(self, data: bytes) -> object:
        if not data:
            return None
        months, offset = read_signed(data, 0)
        days, offset = read_signed(data, offset)
        nanoseconds, offset = read_signed(data, offset)
        if offset != len(data):
            raise CorruptError(f"{len(data) - offset} bytes after a duration")
        if not _is_duration(months, days, nanoseconds):
            raise CorruptError("a duration has 32-bit months and days, and one sign")
        return {"months": months, "days": days, "nanoseconds": nanoseconds}

    def encode(self, value: object) -> bytes:
        if value is None:
            return b""
        if isinstance(value, dict):
            units = (value.get("months"), value.get("days"), value.get("nanoseconds"))
            months, days, nanoseconds = (unit if isinstance(unit, int) else _NO_UNIT for unit in units)
            if _is_duration(months, days, nanoseconds):
                return write_signed(months) + write_signed(days) + write_signed(nanoseconds)
        raise wrong_value("duration", "a dict of months, days and nanoseconds of one sign", value)


class CounterCodec(Codec):
    """A counter context: its shards, each {"id": 16 bytes, "clock": int, "count": int} (db.context.CounterContext).

    In the commit log it is one global shard, the leader's own new count. Which shards are global or local is not
    kept, so not exact; written as global ones.
    """

    def __init__(self) -> None:
        super().__init__(exact=False)

    def decode(self, data: bytes) -> object:
        if not data:
            return None
        if len(data) < 2:
            raise TruncatedError("a counter context has 2 bytes or more")
        # A negative count marks contexts whose local shards are to be cleared; its size is the same.
        start = 2 + 2 * abs(int.from_bytes(data[:2], "big", signed=True))
        if start > len(data) or (len(data) - start) % _SHARD:
            raise TruncatedError(f"a counter context of {len(data)} bytes ends within its header or a shard")
        return [_shard(data, offset) for offset in range(start, len(data), _SHARD)]

    def encode(self, value: object) -> bytes:
        if value is None:
            return b""
        if not isinstance(value, list) or len(value) >= 1 << 15:
            raise wrong_value("counter", "a list of shards", value)
        header = [len(value).to_bytes(2, "big")]
        header.extend((0x8000 + index).to_bytes(2, "big") for index in range(len(value)))
        return b"".join(header) + b"".join(_shard_bytes(shard) for shard in value)


def _is_duration(months: int, days: int, nanoseconds: int) -> bool:
    low, high = min(months, days, nanoseconds), max(months, days, nanoseconds)
    if low < 0 < high:
        return False
    in_int = -(1 << 31) <= months < 1 << 31 and -(1 << 31) <= days < 1 << 31
    return in_int and -(1 << 63) <= nanoseconds < 1 << 63


def _shard(data: bytes, start: int) -> dict[str, object]:
    return {
        "id": data[start : start + 16],
        "clock": int.from_bytes(data[start + 16 : start + 24], "big", signed=True),
        "count": int.from_bytes(data[start + 24 : start + 32], "big", signed=True),
    }


def _shard_bytes(shard: object) -> bytes:
    if isinstance(shard, dict):
        name, clock, count = shard.get("id"), shard.get("clock"), shard.get("count")
        if isinstance(name, bytes) and len(name) == 16 and isinstance(clock, int) and isinstance(count, int):
            try:
                return name + clock.to_bytes(8, "big", signed=True) + count.to_bytes(8, "big", signed=True)
            except OverflowError:
                pass
    raise wrong_value("counter", "shards of id, clock and count", shard)


def address_text(data: bytes) -> str:
    """The text of 4 or 16 bytes: dotted decimal, or lower-case groups with the longest run of zeros as "::".

    An IPv4 address inside IPv6 stays IPv6 (::ffff:1.2.3.4), so that the text leads back to its 16 bytes.
    """
    if len(data) == 4:
        return f"{data[0]}.{data[1]}.{data[2]}.{data[3]}"
    if data.startswith(_MAPPED):  # ipaddress writes it in groups before Python 3.13
        return f"::ffff:{data[12]}.{data[13]}.{data[14]}.{data[15]}"
    return str(ipaddress.IPv6Address(data))


def address_bytes(text: str) -> bytes:
    """The 4 or 16 bytes of an address; raises ValueError for other text, also for one with a zone."""
    try:
        if ":" not in text:
            return ipaddress.IPv4Address(text).packed
        if "%" not in text:
            return ipaddress.IPv6Address(text).packed
    except ipaddress.AddressValueError:
        pass
    raise ValueError("inet takes an IPv4 or IPv6 address without a zone")
