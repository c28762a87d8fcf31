"""Reports of changes that are not published: losses in `<prefix>.progress`, dead letters in `<prefix>.dead-
letter`.
"""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tailrace.commitlog.frames import Entry
from tailrace.state import Loss, Missing, Parked
from tailrace_schemas.errors import CorruptError
from tailrace_schemas.formats import json_object, require_format
from tailrace_schemas.position import Position, position_from_json, position_to_json

LOSS_VERSION: Final = 1

_NONSENSE: Final = (ValueError, LookupError, TypeError, AttributeError, OverflowError)
_KEY: Final = re.compile(r"(?P<cluster>.+)/(?P<host>[^/]+)/(?P<id>(?:loss|retracted)/\d+/-?\d+)", re.DOTALL)
# The record has to fit its topic, whatever the number of tables.
_MOST_TABLES: Final = 100
LETTER_FORMAT: Final = 1
CHUNK: Final = 512 * 1024


@dataclass(frozen=True, slots=True)
class ReportedLoss:
    """A loss that `.progress` has. `id` is its key behind the host's: `loss/<epoch>/<segment>`, or `retracted/...`.

    `kind`: lost, unknown or retracted. What is missing stood behind `first` and before `until`. `tables`: those that
    may be concerned, a hundred at most; empty where nobody knows. `seen` and `acknowledged` are milliseconds since
    1970; None: nobody has acknowledged it.
    """

    cluster: str
    host: str
    id: str
    kind: str
    words: str
    seen: int
    segments: tuple[int, int]
    first: Position
    until: Position
    tables: tuple[str, ...]
    acknowledged: int | None = None

    @property
    def cause(self) -> str:
        """Its name in health."""
        return cause_of(self.id)


def cause_of(id: str) -> str:
    """A loss's name in health, by its id."""
    return f"loss of {id.rpartition('/')[2]}"


def loss_words(words: str) -> str:
    """What health says of a loss until somebody acknowledges it."""
    return f"{words}. `tailrace losses acknowledge` ends this message"


def loss_id(loss: Loss) -> str:
    """The id of missing segments."""
    kind = "retracted" if loss.kind is Missing.RETRACTED else "loss"
    return f"{kind}/{loss.first.epoch}/{loss.segments[0]}"


def loss_record(cluster: str, host: str, loss: Loss, found_at: int, tables: Iterable[str] = ()) -> tuple[bytes, bytes]:
    """Key and value. `found_at` is in milliseconds; `tables` are those of which changes may be missing.

    Key `<cluster name>/<host id>/loss/<epoch>/<first missing segment>`, of what was retracted `.../retracted/...`.
    Value {kind: lost | unknown | retracted, first, until: {epoch, segment, offset}, segments: [first, last], tables,
    words, seen, acknowledged (ms, where somebody has), version: 1}. What is missing stood behind `first` and before
    `until`, what was retracted up to it.
    """
    value = {
        "kind": loss.kind.value,
        "first": position_to_json(loss.first),
        "until": position_to_json(loss.until),
        "segments": list(loss.segments),
        "tables": sorted(tables)[:_MOST_TABLES],
        "words": str(loss),
        "seen": found_at,
        "version": LOSS_VERSION,
    }
    # A loss that is found again has the same key, so that compaction keeps one record of it.
    return f"{cluster}/{host}/{loss_id(loss)}".encode(), _encoded(value)


def decode_loss(key: bytes, value: bytes) -> ReportedLoss | None:
    """The way back; None under a key that is no loss's. Raises CorruptError for what is no record of ours, or of
    another version."""
    match = _KEY.fullmatch(key.decode(errors="replace"))
    if match is None:
        return None
    try:
        record = json_object(value)
        require_format(f"the loss {key!r}", record["version"], LOSS_VERSION, error=CorruptError)
        (begin, end), acknowledged = record["segments"], record.get("acknowledged")
        return ReportedLoss(
            match["cluster"],
            match["host"],
            match["id"],
            str(record["kind"]),
            str(record["words"]),
            int(record["seen"]),
            (int(begin), int(end)),
            position_from_json(record["first"]),
            position_from_json(record["until"]),
            tuple(str(table) for table in record["tables"]),
            None if acknowledged is None else int(acknowledged),
        )
    except _NONSENSE as error:
        words = f"{type(error).__name__}: {str(error)[:200]}"
        raise CorruptError(f"the loss {key!r}: {words} in {value[:200]!r}") from error


def acknowledged(value: bytes, milliseconds: int) -> bytes:
    """The value of a loss's record, once somebody has acknowledged the loss."""
    return _encoded({**json_object(value), "acknowledged": milliseconds})


def _encoded(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter's account of a lot.

    `mutations` are those of it that could be read again, (offset, size) each: none where the segment is gone.
    `sha256` is over their bytes.
    """

    lot: Parked
    file: str
    mutations: tuple[tuple[int, int], ...]
    sha256: str

    @property
    def lost(self) -> tuple[int, ...]:
        """The ends of mutations that are nowhere any more."""
        existing = {offset for offset, _ in self.mutations}
        return tuple(offset for offset in self.lot.offsets if offset not in existing)


def dead_letter(lot: Parked, entries: Iterable[Entry]) -> DeadLetter:
    """The letter of a lot, from what a reading of its segment gives."""
    digest, sizes, file = hashlib.sha256(), [], ""
    for entry in entries:
        # The checksum lets somebody find the very mutation in a backup of the segment, without a byte of it being
        # shown.
        digest.update(entry.payload)
        sizes.append((entry.position.offset, len(entry.payload)))
        file = entry.file
    return DeadLetter(lot, file, tuple(sizes), digest.hexdigest())


def letter_key(host: str, lot: Parked) -> bytes:
    """`<host id>/<epoch>/<segment>/<table id>/<first offset>`."""
    return f"{host}/{lot.epoch}/{lot.segment}/{lot.table}/{lot.first}".encode()


def encode_letter(host: str, letter: DeadLetter, name: str | None, now: int) -> bytes:
    """{host, table_id, table, epoch, segment, file, mutations: [[offset, bytes]], lost: [offset], sha256,
    reason, since, at, format}. `name` is the table's, null where it is not known; times are milliseconds. No byte of a
    mutation is part of it: the table may be anybody's, passwords included."""
    lot = letter.lot
    record = {
        "host": host,
        "table_id": str(lot.table),
        "table": name,
        "epoch": lot.epoch,
        "segment": lot.segment,
        "file": letter.file,
        "mutations": [list(mutation) for mutation in letter.mutations],
        "lost": list(letter.lost),
        "sha256": letter.sha256,
        "reason": lot.reason,
        "since": lot.since,
        "at": now,
        "format": LETTER_FORMAT,
    }
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()


def payload_records(host: str, lot: Parked, entry: Entry) -> Iterator[tuple[bytes, bytes]]:
    """A serialized mutation itself, in chunks: keys `<letter's key>/<offset>/<chunk>`, values {offset, chunk, of,
    version, bytes (base64), format}. Only for those who ask for it by setting."""
    offset = entry.position.offset
    # A mutation may be as large as half a segment (max_mutation_size), and Kafka's records are smaller by default.
    of = max(1, -(-len(entry.payload) // CHUNK))
    for chunk in range(of):
        encoded = b64encode(entry.payload[chunk * CHUNK : (chunk + 1) * CHUNK]).decode()
        record = {
            "offset": offset,
            "chunk": chunk,
            "of": of,
            "version": entry.version,
            "bytes": encoded,
            "format": LETTER_FORMAT,
        }
        yield letter_key(host, lot) + f"/{offset}/{chunk}".encode(), json.dumps(record).encode()
