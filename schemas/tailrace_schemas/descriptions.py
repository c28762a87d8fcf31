"""What a proposal's chunks hold, joined: predecessor, ring and entries as bytes, and back.

They are a zlib stream of a length (4 bytes), a header of that many bytes, and columns one after the other, numbers
big-endian. The header is JSON:

    {"predecessor": ms | null, "nodes": [[host, datacenter], ...], "entries": E, "streams": S}

Per entry: the end of its range (8 bytes, signed), the node that holds that token (4), its number of streams (4),
ignore_msb (1). Then come the stream ids (16), the entries in turn, each in shard order. A column stands byte by byte:
the first byte of all its elements, then the second of all, and so on. So the random bits do not hinder compression of
the others. 1,000 nodes with 256 tokens and 8 streams an entry take 17 MB, of which 10 are random.

Entries are written out, not derived from ring and seed. So a later version that draws streams otherwise reads the old
ones as they were. Neither uuid nor timestamp is among the bytes: proposals that compete for one ring have equals.
"""

from __future__ import annotations

import json
import sys
import zlib
from array import array
from itertools import pairwise
from typing import Any, Final, NamedTuple

from tailrace_schemas.entries import STREAM_ID_BYTES, Entries
from tailrace_schemas.errors import CorruptError
from tailrace_schemas.ring import Node, Ring

_MAX_BYTES: Final = 1 << 30
_ENTRY_BYTES: Final = 8 + 4 + 4 + 1
# Most of it is random: higher levels take twice the time and save a hundredth.
_LEVEL: Final = 1


class Description(NamedTuple):
    """A proposal without its name and time."""

    predecessor: int | None
    ring: Ring
    entries: Entries


def pack(description: Description) -> bytes:
    """Its bytes. Raises ValueError when the entries are not the ring's: their ends are its tokens."""
    predecessor, ring, entries = description
    holders = {token: index for index, node in enumerate(ring.nodes) for token in node.tokens}
    if sorted(holders) != list(entries.range_ends):
        raise ValueError("the entries do not end at the tokens of the ring")
    header = to_json(
        {
            "predecessor": predecessor,
            "nodes": [[node.host, node.datacenter] for node in ring.nodes],
            "entries": len(entries),
            "streams": entries.stream_count,
        }
    )
    columns = (
        _column(entries.range_ends),
        _column(array("I", map(holders.__getitem__, entries.range_ends))),
        _column(array("I", (last - first for first, last in pairwise(entries.firsts)))),
        entries.ignore_msb,
        _planes(entries.ids, STREAM_ID_BYTES),
    )
    return zlib.compress(b"".join((len(header).to_bytes(4), header, *columns)), _LEVEL)


def unpack(packed: bytes) -> Description:
    """What a proposal says. Raises CorruptError or RingError."""
    plain = _unzipped(packed)
    try:
        return _unpack_columns(plain)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CorruptError(f"a generation's description lacks or garbles a field: {error}") from error


def to_json(fields: dict[str, Any]) -> bytes:
    """One line of JSON without spaces, in UTF-8."""
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def parse_object(text: bytes | None) -> dict[str, Any]:
    """The object that JSON text is. Raises CorruptError."""
    try:
        fields = json.loads(text or b"")
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise CorruptError("not a JSON object")
    return fields


def _unpack_columns(plain: bytes) -> Description:
    start = 4 + int.from_bytes(plain[:4])
    fields = parse_object(plain[4:start])
    entries, streams = _word(fields["entries"]), _word(fields["streams"])
    if min(entries, streams) < 0 or len(plain) != start + _ENTRY_BYTES * entries + STREAM_ID_BYTES * streams:
        raise CorruptError(f"a generation's columns do not have the length of {entries} entries, {streams} streams")
    cut = _Cut(plain, start)
    ends, holders = cut.words("q", entries), cut.words("I", entries)
    counts, ignore_msb = cut.words("I", entries), cut.take(entries)
    ids = _rows(cut.take(STREAM_ID_BYTES * streams), STREAM_ID_BYTES)
    tokens_of: list[list[int]] = [[] for _ in fields["nodes"]]
    for end, holder in zip(ends, holders, strict=True):
        if holder >= len(tokens_of):
            raise CorruptError(f"token {end} is held by node {holder} of {len(tokens_of)}")
        tokens_of[holder].append(end)
    nodes = zip(fields["nodes"], tokens_of, strict=True)
    ring = Ring(tuple(Node(str(host), str(dc), tuple(tokens)) for (host, dc), tokens in nodes))
    predecessor = None if fields["predecessor"] is None else _word(fields["predecessor"])
    return Description(predecessor, ring, Entries(ends, counts, ignore_msb, ids))


class _Cut:
    """Columns taken from the front, one after the other."""

    def __init__(self, plain: bytes, start: int) -> None:
        self._rest = memoryview(plain)[start:]

    def take(self, size: int) -> bytes:
        head, self._rest = bytes(self._rest[:size]), self._rest[size:]
        return head

    def words(self, code: str, count: int) -> array[int]:
        words: array[int] = array(code)
        words.frombytes(_rows(self.take(words.itemsize * count), words.itemsize))
        if sys.byteorder == "little":
            words.byteswap()
        return words


def _column(words: array[int]) -> bytes:
    big_endian = words[:]
    if sys.byteorder == "little":
        big_endian.byteswap()
    return _planes(big_endian.tobytes(), words.itemsize)


def _planes(rows: bytes, width: int) -> bytes:
    """The first byte of each row, then the second of each, ..."""
    return b"".join(rows[n::width] for n in range(width))


def _rows(planes: bytes, width: int) -> bytes:
    rows, count = bytearray(len(planes)), len(planes) // width
    for n in range(width):
        rows[n::width] = planes[n * count : (n + 1) * count]
    return bytes(rows)


def _unzipped(packed: bytes) -> bytes:
    unzip = zlib.decompressobj()
    try:
        plain = unzip.decompress(packed, _MAX_BYTES)
    except zlib.error as error:
        raise CorruptError(f"a generation's description is no zlib stream: {error}") from error
    if not unzip.eof or unzip.unused_data:
        raise CorruptError("a generation's description is cut, too large, or followed by other bytes")
    return plain


def _word(value: object) -> int:
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{value!r} is no 64-bit integer")
    return value
