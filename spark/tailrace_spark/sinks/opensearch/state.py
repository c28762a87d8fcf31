"""What is kept of a row and of a partition beside what is shown: stored bytes, and fields to find it by.

Bytes are stored beside each document and no part of `_source`. A length is a vint, one more than it is, 0 for none.

    row       = version 01, key: bytes, assignment, expires, count, clustering column: bytes*, state (rowstate.codec)
    partition = version 01, key: bytes, pending: 00 or 01, expires, count,
                (clustering value: bytes, state: bytes, assignment)*
    assignment = 00, or 01, generation: signed, stream id: bytes    expires = 00, or 01, seconds: signed

What is kept of a table is in `table_entry`. This module is compiled.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from librt.strings import BytesWriter

from tailrace_schemas.cql.vint import read_signed, read_unsigned, write_signed, write_unsigned
from tailrace_schemas.errors import TruncatedError, UnsupportedError
from tailrace_spark.merge.partition import StoredRow
from tailrace_spark.merge.stored_row import (
    ROW,
    STATIC,
    HeadRow,
    PartitionHead,
    RowKey,
    decode_stored,
    deletion_rows,
    head_of,
)
from tailrace_spark.rowstate.partition import deletes_from, seconds
from tailrace_spark.sinks.opensearch.bulk import Op, StoredDocument, Version
from tailrace_spark.sinks.opensearch.documents import OWN, Document, digest, head_id

VERSION: Final = 1
KIND_ROW, KIND_HEAD, KIND_TABLE = "row", "partition", "table"
FIELDS: Final[Mapping[str, Any]] = {
    "kind": {"type": "keyword", "doc_values": False},
    "there": {"type": "boolean", "doc_values": False},
    "partition": {"type": "keyword", "doc_values": False},
    "clustering": {"type": "keyword", "doc_values": False},
    "expires": {"type": "long"},
    "deletes": {"type": "long"},
    "state": {"type": "binary", "store": True},
}
"""The mapping of what is the sink's own. `there`: whether SELECT shows the row; `partition` is a digest of its key;

`clustering` the first bytes of its order-preserving clustering value, in hexadecimal digits; `expires` when it reads
otherwise by time alone, in seconds; `deletes` likewise when the first of what only deletes was written and had come.
"""
_ORDERED_BYTES: Final = 256  # of a clustering value; what is cut off is compared by whoever searches


@dataclass(frozen=True, slots=True)
class PartitionDocument:
    """What is kept of a partition beside its rows, as a state table has it below ROW; and when it next expires.

    `pending`: its rows are yet to be brought to it.
    """

    rows: Mapping[bytes, HeadRow] = field(default_factory=dict)
    pending: bool = False
    expires: int | None = None

    @property
    def head(self) -> PartitionHead:
        """What it says."""
        return head_of([self.rows[state_key] for state_key in sorted(self.rows)])


def encode_row(key: bytes, row: StoredRow) -> bytes:
    """The bytes kept of a row."""
    stored = row.stored
    out = BytesWriter()
    out.append(VERSION)
    _put(out, key)
    _put_assignment(out, stored[1], stored[2])
    _put_expiry(out, row.next_expiry)
    out.write(write_unsigned(len(row.written_as)))
    for octets in row.written_as:
        _put(out, octets)
    out.write(stored[0])
    return out.getvalue()


def decode_row(encoded: bytes) -> tuple[bytes, StoredRow]:
    """The key and the row of these bytes. Raises DecodeError."""
    reader = _Reader(encoded)
    key = reader.required()
    generation, stream_id = reader.assignment()
    expires = reader.expiry()
    written_as = tuple([reader.octets() for _ in range(reader.count())])
    return key, StoredRow((reader.rest(), generation, stream_id), written_as, expires)


def encode_head(key: bytes, head: PartitionDocument) -> bytes:
    """The bytes kept of a partition."""
    out = BytesWriter()
    out.append(VERSION)
    _put(out, key)
    out.append(head.pending)
    _put_expiry(out, head.expires)
    out.write(write_unsigned(len(head.rows)))
    for state_key in sorted(head.rows):
        clustering, state, generation, stream_id = head.rows[state_key]
        _put(out, clustering)
        _put(out, state)
        _put_assignment(out, generation, stream_id)
    return out.getvalue()


def decode_head(encoded: bytes) -> tuple[bytes, PartitionDocument]:
    """The key and the head of these bytes. Raises DecodeError."""
    reader = _Reader(encoded)
    key = reader.required()
    pending = bool(reader.byte())
    expires = reader.expiry()
    rows = {}
    for _ in range(reader.count()):
        clustering, state = reader.required(), reader.required()
        rows[clustering] = (clustering, state, *reader.assignment())
    return key, PartitionDocument(rows, pending, expires)


def own(
    kind: str,
    encoded: bytes,
    *,
    visible: bool = False,
    row_key: RowKey | None = None,
    partition: str | None = None,
    expires: int | None = None,
    deletes: int | None = None,
) -> dict[str, object]:
    """The fields of FIELDS of one document; `partition` is the digest of its key, where that is made already."""
    fields: dict[str, object] = {
        "kind": kind,
        "there": visible,
        "state": b2a_base64(encoded, newline=False).decode("ascii"),
    }
    if row_key is not None:
        fields["partition"] = partition or digest(row_key[0])
        if row_key[1] >= ROW:
            fields["clustering"] = ordered(row_key[1][len(ROW) :])
    if expires is not None:
        fields["expires"] = expires
    if deletes is not None:
        fields["deletes"] = deletes
    return fields


def row_op(
    identity: str, version: Version | None, row_key: RowKey, row: StoredRow, visible: Mapping[str, Any] | None,
    deletes: int | None, *, partition: str | None = None, unchecked: bool = False,
) -> Op:  # fmt: skip
    """What puts a row there; `visible` is what searches return of it, the rest is as `own` and Op say."""
    fields = own(
        KIND_ROW, encode_row(row_key[0], row), visible=visible is not None, row_key=row_key, partition=partition,
        expires=row.next_expiry, deletes=deletes,
    )  # fmt: skip
    return Op(identity, version, {**(visible or {}), OWN: fields}, unchecked)


def head_op(
    version: Version | None, key: bytes, head: PartitionDocument, visible: Mapping[str, Any] | None, now: int, *,
    partition: str | None = None, unchecked: bool = False,
) -> Op:  # fmt: skip
    """The same of what is kept of a partition beside its rows."""
    partition = partition or digest(key)
    fields = own(
        KIND_HEAD, encode_head(key, head), visible=visible is not None, row_key=(key, STATIC), partition=partition,
        expires=head.expires, deletes=head_deletes(head, now),
    )  # fmt: skip
    return Op(head_id(partition), version, {**(visible or {}), OWN: fields}, unchecked)


def row_deletes(row: StoredRow, now: int) -> int | None:
    """`deletes` of a row that is written at a time, in seconds: all of it came by then."""
    return _later(deletes_from(decode_stored(*row.stored).state), now)


def head_deletes(head: PartitionDocument, now: int) -> int | None:
    """The same of a partition."""
    head_state = head.head
    times = [seconds(deletion.deletion.written) for deletion in deletion_rows(head_state.deletions).values()]
    static = None if head_state.static is None else deletes_from(head_state.static.state)
    return _later(min([*times, *(() if static is None else (static,))], default=None), now)


def _later(deletes: int | None, now: int) -> int | None:
    return None if deletes is None else max(deletes, now)


def ordered(clustering: bytes) -> str:
    """What `clustering` has of order-preserving bytes: it orders as they do, but for what is cut off."""
    return clustering[:_ORDERED_BYTES].hex()


def _put(out: BytesWriter, value: bytes | None) -> None:
    if value is None:
        out.append(0)
        return
    out.write(write_unsigned(len(value) + 1))
    out.write(value)


def _put_assignment(out: BytesWriter, generation: int | None, stream_id: bytes | None) -> None:
    if generation is None or stream_id is None:
        out.append(0)
        return
    out.append(1)
    out.write(write_signed(generation))
    _put(out, stream_id)


def _put_expiry(out: BytesWriter, expires: int | None) -> None:
    out.append(expires is not None)
    if expires is not None:
        out.write(write_signed(expires))


class _Reader:
    """Walks over encoded bytes; every read past their end is a TruncatedError."""

    def __init__(self, encoded: bytes) -> None:
        self._bytes = encoded
        self._at = 0
        version = self.byte()
        if version != VERSION:
            raise UnsupportedError(f"a search document of format {version}: this Tailrace reads {VERSION}")

    def byte(self) -> int:
        if self._at >= len(self._bytes):
            raise TruncatedError("a search document's state ends too early")
        self._at += 1
        return self._bytes[self._at - 1]

    def count(self) -> int:
        value, self._at = read_unsigned(self._bytes, self._at)
        return value

    def octets(self) -> bytes | None:
        size = self.count()
        if not size:
            return None
        end = self._at + size - 1
        if end > len(self._bytes):
            raise TruncatedError("a search document's state ends too early")
        value, self._at = self._bytes[self._at : end], end
        return value

    def required(self) -> bytes:
        return self.octets() or b""

    def assignment(self) -> tuple[int | None, bytes | None]:
        if not self.byte():
            return None, None
        generation, self._at = read_signed(self._bytes, self._at)
        return generation, self.octets()

    def expiry(self) -> int | None:
        if not self.byte():
            return None
        value, self._at = read_signed(self._bytes, self._at)
        return value

    def rest(self) -> bytes:
        return self._bytes[self._at :]


NO_DOCUMENT: Final = PartitionDocument()
"""Of a partition of which nothing is kept beside its rows."""


@dataclass(slots=True)
class StoredDocuments:
    """What is there of some partitions: heads by key, rows as far as they were asked for, documents by id.

    `digests` of keys, each made once.
    """

    digests: dict[bytes, str] = field(default_factory=dict)
    heads: dict[bytes, PartitionDocument] = field(default_factory=dict)
    rows: dict[bytes, dict[bytes, StoredRow]] = field(default_factory=dict)
    ids: dict[RowKey, str] = field(default_factory=dict)
    found: dict[str, StoredDocument] = field(default_factory=dict)

    def digest(self, key: bytes) -> str:
        """Of a partition's key."""
        key_digest = self.digests.get(key)
        if key_digest is None:
            key_digest = self.digests[key] = digest(key)
        return key_digest

    def head_id(self, key: bytes) -> str:
        """The id of what is kept of a partition beside its rows."""
        return head_id(self.digest(key))

    def head(self, key: bytes) -> PartitionDocument:
        """What is there of a partition beside its rows."""
        return self.heads.get(key, NO_DOCUMENT)

    def version(self, identity: str) -> Version | None:
        """That of a document; None: there is none."""
        document = self.found.get(identity)
        return None if document is None else document.version

    def shows(self, identity: str, document: Document | None) -> bool:
        """Whether searches see this of a document already."""
        stored = self.found.get(identity)
        return (document or {}) == ({} if stored is None else stored.source or {})
