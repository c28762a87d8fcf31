"""The records of `<prefix>.dead-letter`: mutations that could not be published, and where they are (contracts.md 2)."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from tailrace.commitlog.frames import Entry
from tailrace.state import Parked

FORMAT: Final = 1
CHUNK: Final = 512 * 1024


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
        "format": FORMAT,
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
            "format": FORMAT,
        }
        yield letter_key(host, lot) + f"/{offset}/{chunk}".encode(), json.dumps(record).encode()
