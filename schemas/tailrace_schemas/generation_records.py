"""The generations topic: proposals to records, and records in their order to the generations that are valid.

A proposal is n chunk records, key `<uuid>/<i>`, and then one commit record, key `<uuid>`. A chunk is this line of
JSON, 0A and the bytes, whose digest it has.

    {"version": 2, "predecessor": ms | null, "i": i, "n": n, "sha256": hex}

A commit record is one of JSON, with the digest of all bytes in order.

    {"version": 2, "uuid": "...", "timestamp": ms, "n": n, "sha256": hex}

Proposals that compete for one ring have equal chunks, and a reader keeps those once. All bytes in order are the
description, a zlib stream. It has a length (4 bytes), a header of that many bytes, and columns one after the other.
Numbers are big-endian. The header is JSON:

    {"predecessor": ms | null, "nodes": [[host, datacenter], ...], "entries": E, "streams": S}

Per entry: the end of its range (8 bytes, signed), the node that holds that token (4), its number of streams (4),
ignore_msb (1). Then come the stream ids (16), the entries in turn, each in shard order. A column stands byte by byte:
the first byte of all its elements, then the second of all, and so on. So the random bits do not hinder compression of
the others. 1,000 nodes with 256 tokens and 8 streams an entry take 17 MB, of which 10 are random.

Entries are written out, not derived from ring and seed. So a later version that draws streams otherwise reads the old
ones as they were. Neither uuid nor timestamp is among the bytes: proposals that compete for one ring have equals.
"""

from __future__ import annotations

import hashlib
import json
import sys
import zlib
from array import array
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple
from uuid import UUID

from tailrace_schemas.entries import STREAM_ID_BYTES, Entries
from tailrace_schemas.errors import CorruptError, UnsupportedError
from tailrace_schemas.formats import require_format
from tailrace_schemas.ring import Node, Ring, RingError
from tailrace_schemas.streams import LEEWAY_MS, Generation, Mark, operating

_MAX_BYTES: Final = 1 << 30
_ENTRY_BYTES: Final = 8 + 4 + 4 + 1
# Most of it is random: higher levels take twice the time and save a hundredth.
_LEVEL: Final = 1
VERSION: Final = 2
EXPIRED_VERSION: Final = 1
MAX_RECORD_BYTES: Final = 512 << 10

_EXPIRED: Final = b"expired"
_EVERYWHERE: Final = " everywhere"
# With the line before them, so much stays below MAX_RECORD_BYTES.
_CHUNK_BYTES: Final = 511 << 10
# Write times are 64-bit microseconds: no timestamp beyond them can mean anything.
_MAX_TIMESTAMP: Final = 2**63 // 1000


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A generation that somebody wants: for this ring, after the generation whose timestamp is `predecessor`."""

    uuid: UUID
    predecessor: int | None
    ring: Ring
    generation: Generation


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedGeneration:
    """A valid generation as it stands in the topic; its entries are unpacked on request, since there can be many.

    `offset` and `appended` (milliseconds, the broker's clock) are the commit record's.
    """

    uuid: UUID
    timestamp: int
    predecessor: int | None
    offset: int
    appended: int
    packed: bytes = field(repr=False)

    def unpack(self) -> Proposal:
        """The ring and the generation."""
        _, ring, entries = unpack(self.packed)
        generation = Generation(self.timestamp, entries)
        return Proposal(uuid=self.uuid, predecessor=self.predecessor, ring=ring, generation=generation)


@dataclass(frozen=True, slots=True)
class Expired:
    """A record that made generations go: the timestamps of those, ascending; `oldest` is the first that stays."""

    offset: int
    gone: tuple[int, ...]
    oldest: int


@dataclass(frozen=True, slots=True)
class Ignored:
    """A record that makes no generation, and why; every reader ignores it alike."""

    offset: int
    reason: str


def encode_proposal(proposal: Proposal) -> tuple[tuple[bytes, bytes], ...]:
    """Keys and values of a proposal's records in the order to append them: the chunks, and last the commit record.

    Raises ValueError when the generation is not the ring's.
    """
    packed = pack(Description(proposal.predecessor, proposal.ring, proposal.generation.entries))
    parts = [packed[start : start + _CHUNK_BYTES] for start in range(0, len(packed), _CHUNK_BYTES)]
    records = []
    for i, chunk in enumerate(parts):
        line = {
            "version": VERSION,
            "predecessor": proposal.predecessor,
            "i": i,
            "n": len(parts),
            "sha256": hashlib.sha256(chunk).hexdigest(),
        }
        records.append((f"{proposal.uuid}/{i}".encode(), to_json(line) + b"\n" + chunk))
    commit = {
        "version": VERSION,
        "uuid": str(proposal.uuid),
        "timestamp": proposal.generation.timestamp,
        "n": len(parts),
        "sha256": hashlib.sha256(packed).hexdigest(),
    }
    return (*records, (str(proposal.uuid).encode(), to_json(commit)))


def commit_at(commit: tuple[bytes, bytes], timestamp: int) -> tuple[bytes, bytes]:
    """The commit record of the same proposal, to operate from another time (ms): its chunks do not say from when."""
    key, value = commit
    return key, to_json({**parse_object(value), "timestamp": timestamp})


def encode_expired(oldest: int, retention_ms: int) -> tuple[bytes, bytes]:
    """Key and value of the record that lets every generation before `oldest` go, as no change of so long ago is kept.

    It holds if and only if the generation of that timestamp is valid and not gone. It must also have operated for
    `retention_ms` when the record was appended, by the broker's clock (contracts.md 5).
    """
    return _EXPIRED, to_json({"version": EXPIRED_VERSION, "oldest": oldest, "retention": retention_ms})


class GenerationLog:
    """The valid generations among the topic's records, which are fed in order of their offsets.

    A proposal is valid if and only if four rules hold (contracts.md 5). Its predecessor is the latest valid generation.
    Its timestamp is later than that one's. Its commit record was appended LEEWAY_MS before its timestamp or earlier,
    except for the first generation. All its chunks precede the commit record, whole. Old ones go when an `expired`
    record says so. All else is ignored, by every reader alike.
    """

    def __init__(self) -> None:
        self._published: list[PublishedGeneration] = []
        self._timestamps: list[int] = []
        self._pending: dict[UUID, _Chunks] = {}
        self._parts: dict[str, bytes] = {}

    @property
    def published(self) -> tuple[PublishedGeneration, ...]:
        """The valid generations that are not gone, ascending by timestamp."""
        return tuple(self._published)

    @property
    def latest(self) -> PublishedGeneration | None:
        """The last valid generation, the predecessor of the next; None before the first."""
        return self._published[-1] if self._published else None

    def operating(self, written: int, known_until: int | None = None) -> tuple[PublishedGeneration, Mark | None] | None:
        """The generation that operated at a write time (microseconds), and a mark; None before the first is known.

        As tailrace_schemas.streams.operating, which see.
        """
        if not self._published:
            return None
        operated = operating(self._timestamps, written, known_until)
        return self._published[operated.generation], operated.mark

    def feed(
        self, offset: int, appended: int, key: bytes | None, value: bytes | None
    ) -> PublishedGeneration | Expired | Ignored | None:
        """Take the next record: a new generation, which ones go, or why the record makes none; None for a chunk.

        `appended` is the record's append time in milliseconds. Raises UnsupportedError for a commit or `expired` record
        of another version: to ignore it would mean to differ from those who can read it.
        """
        try:
            if key == _EXPIRED:
                return self._expire(parse_object(value), offset, appended)
            uuid, chunk = _parse_key(key)
            if chunk is not None:
                self._keep(uuid, chunk, value or b"")
                return None
            generation = self._judge(uuid, _Commit.parse(uuid, parse_object(value)), offset, appended)
        except (CorruptError, RingError) as error:
            return Ignored(offset, str(error))
        self._accept(generation)
        return generation

    def _keep(self, uuid: UUID, i: int, value: bytes) -> None:
        line, _, body = value.partition(b"\n")
        fields = parse_object(line)
        predecessor = fields.get("predecessor")
        if predecessor is not None:
            predecessor = _integer(fields, "predecessor")
        if self._is_superseded(predecessor):
            return
        chunk = _decode_part(fields, body, i)
        digest = fields["sha256"]
        chunks = self._pending.setdefault(uuid, _Chunks(predecessor, {}))
        chunks.parts[i] = (_integer(fields, "n"), self._parts.setdefault(digest, chunk))

    def _is_superseded(self, predecessor: int | None) -> bool:
        """Whether no proposal after this predecessor can become valid any more."""
        latest = self.latest
        return latest is not None and (predecessor is None or predecessor < latest.timestamp)

    def _judge(self, uuid: UUID, commit: _Commit, offset: int, appended: int) -> PublishedGeneration:
        """The generation; CorruptError when any rule of validity is broken."""
        chunks = self._pending.pop(uuid, _Chunks(None, {}))
        parts = [chunks.parts.get(i) for i in range(min(commit.n, len(chunks.parts) + 1))]
        chunk_bytes = [chunk[1] for chunk in parts if chunk is not None and chunk[0] == commit.n]
        if len(chunk_bytes) != commit.n:
            raise CorruptError(f"proposal {uuid}: a chunk is missing, late or broken, or its predecessor is superseded")
        packed = b"".join(chunk_bytes)
        if hashlib.sha256(packed).hexdigest() != commit.sha256:
            raise CorruptError(f"proposal {uuid}: its chunks are not those that it commits")
        latest = self.latest
        expected = None if latest is None else latest.timestamp
        if chunks.predecessor != expected:
            raise CorruptError(f"proposal {uuid}: its predecessor is {chunks.predecessor}, the latest is {expected}")
        if expected is not None and commit.timestamp <= expected:
            raise CorruptError(f"proposal {uuid}: timestamp {commit.timestamp} is not later than {expected}")
        if expected is not None and appended > commit.timestamp - LEEWAY_MS:
            raise CorruptError(
                f"proposal {uuid}: appended at {appended}, less than {LEEWAY_MS} ms before its timestamp"
                f" {commit.timestamp}"
            )
        predecessor = unpack(packed).predecessor
        if predecessor != chunks.predecessor:
            raise CorruptError(f"proposal {uuid}: its chunks name another predecessor than its description")
        return PublishedGeneration(
            uuid=uuid,
            timestamp=commit.timestamp,
            predecessor=predecessor,
            offset=offset,
            appended=appended,
            packed=packed,
        )

    def _expire(self, fields: dict[str, Any], offset: int, appended: int) -> Expired:
        """What goes; CorruptError when the record does not hold."""
        version, oldest, retention = (_integer(fields, name) for name in ("version", "oldest", "retention"))
        record = f"the generations topic's expired record (offset {offset})"
        require_format(record, version, EXPIRED_VERSION, otherwise=_EVERYWHERE, error=UnsupportedError)
        if oldest not in self._timestamps[1:]:
            raise CorruptError(f"expired: {oldest} is no generation that others could go before")
        if retention < 0 or appended - retention < oldest:
            raise CorruptError(f"expired: at {appended} changes of before {oldest} were not older than {retention} ms")
        index = self._timestamps.index(oldest)
        expired = tuple(self._timestamps[:index])
        del self._timestamps[:index], self._published[:index]
        return Expired(offset, expired, oldest)

    def _accept(self, generation: PublishedGeneration) -> None:
        self._published.append(generation)
        self._timestamps.append(generation.timestamp)
        self._pending = {u: c for u, c in self._pending.items() if not self._is_superseded(c.predecessor)}
        self._parts.clear()


class _Chunks(NamedTuple):
    """The chunks of a proposal so far: i -> (n, its bytes)."""

    predecessor: int | None
    parts: dict[int, tuple[int, bytes]]


class _Commit(NamedTuple):
    timestamp: int
    n: int
    sha256: str

    @classmethod
    def parse(cls, uuid: UUID, fields: dict[str, Any]) -> _Commit:
        record = f"the generations topic's proposal {uuid}"
        require_format(record, _integer(fields, "version"), VERSION, otherwise=_EVERYWHERE, error=UnsupportedError)
        if fields.get("uuid") != str(uuid):
            raise CorruptError(f"the commit record of {uuid} names another proposal")
        timestamp, n = _integer(fields, "timestamp"), _integer(fields, "n")
        if abs(timestamp) > _MAX_TIMESTAMP or n < 1:
            raise CorruptError(f"proposal {uuid}: timestamp {timestamp} or n {n} cannot be")
        return cls(timestamp, n, str(fields.get("sha256")))


def _parse_key(key: bytes | None) -> tuple[UUID, int | None]:
    """The proposal's uuid; the chunk's number, None for the commit record."""
    try:
        name, slash, chunk_number = (key or b"").decode("ascii").partition("/")
        uuid = UUID(name)
        i = int(chunk_number) if slash else None
    except ValueError as error:
        raise CorruptError(f"a key that is no proposal's: {error}") from error
    if str(uuid) != name or (i is not None and str(i) != chunk_number):
        raise CorruptError(f"a key that is no proposal's: {key!r}")
    return uuid, i


def _integer(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    if type(value) is not int:
        raise CorruptError(f"field {name} is not an integer: {value!r}")
    return value


def _decode_part(fields: dict[str, Any], body: bytes, i: int) -> bytes:
    """A chunk's bytes, checked against its checksum and its place."""
    if fields.get("version") != VERSION or _integer(fields, "i") != i or not 0 <= i < _integer(fields, "n"):
        raise CorruptError(f"chunk {i} has another version, or names another place")
    if hashlib.sha256(body).hexdigest() != fields.get("sha256"):
        raise CorruptError(f"chunk {i} does not have the checksum that it names")
    return body
