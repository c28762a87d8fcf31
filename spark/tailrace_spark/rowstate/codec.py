"""Row states and range deletions to bytes and back, for the state tables of sinks: a format of our own."""

# Stable: one state has exactly one form (columns and paths sorted), so a redelivered batch leaves a table byte for byte
# as it was, and nothing depends on a library's version.
# Small: write times are deltas to the row's newest, which most cells share. A plain cell costs three bytes beside its
# name and value.
# The first byte is the format's version. Integers are Cassandra's vints (VIntCoding), signed ones zigzag.
#
#   state    = version 02, flags (1 marker, 2 deletion, 4 strict), base: signed, [marker], [deletion], count, column*
#   marker   = base - written, expiry            deletion = base - written, local: signed
#   column   = name: bytes, flags (1 deletion, 2 counter), [deletion], count, cell*
#   cell     = flags (1 key, 2 value, 4 ttl, 8 expires, 16 own time, 32 own path), [key: bytes], [base - written],
#              [ttl], [expires: signed], [value: bytes], [path: bytes]: the key is the path where it has no other
#   expiry   = flags (4 ttl, 8 expires), [ttl], [expires: signed]      bytes = length, octets
#   range    = version 02, flags (1 end), [end: bytes], written: signed, local: signed
#   truncations = version 03, count, statement: signed*, count, host truncation*
#   host truncation = host: bytes, written: signed, statement: signed, flags (1 upto), [epoch, segment, offset: signed]

from __future__ import annotations

import builtins
from typing import Final

from librt.strings import BytesWriter

from tailrace_schemas.change import Deletion, Marker
from tailrace_schemas.cql.vint import read_signed, read_unsigned, write_signed, write_unsigned
from tailrace_schemas.errors import CorruptError, TruncatedError, UnsupportedError
from tailrace_schemas.position import Position
from tailrace_spark.rowstate.cells import CellState
from tailrace_spark.rowstate.row import NO_DELETION, ColumnState, Newest, RowState
from tailrace_spark.rowstate.truncation import HostTruncation, TruncationState

VERSION: Final = 2
_ONE_BYTE: Final = 0x80  # vints below it are their own byte
_TRUNCATIONS_VERSION: Final = 3
_MARKER, _DELETION, _STRICT = 1, 2, 4
_COLUMN_DELETION, _COUNTER = 1, 2
_KEY, _VALUE, _TTL, _EXPIRES, _TIME, _OWN_PATH = 1, 2, 4, 8, 16, 32


def encode_state(state: RowState) -> bytes:
    """The one form of a state; equal states give equal bytes."""
    base = newest(state)
    out = BytesWriter()
    out.append(VERSION)
    flags = (_MARKER if state.marker is not None else 0) | (_DELETION if state.deletion is not None else 0)
    out.append(flags | (_STRICT if state.strict else 0))
    _put_signed(out, base)
    if state.marker is not None:
        _put(out, base - state.marker.written)
        _put_expiry(out, state.marker.ttl, state.marker.expires)
    if state.deletion is not None:
        _put_deletion(out, state.deletion, base)
    _put(out, len(state.columns))
    for name in sorted(state.columns):
        _put_column(out, name, state.columns[name], base)
    return out.getvalue()


def decode_state(encoded: bytes) -> RowState:
    """The state of these bytes. Raises DecodeError for other bytes."""
    reader = _Reader(encoded)
    flags = reader.byte()
    base = reader.signed()
    marker = None
    if flags & _MARKER:
        written = base - reader.unsigned()
        marker = Marker(written, *reader.expiry(reader.byte()))
    deletion = reader.deletion(base) if flags & _DELETION else None
    columns: dict[bytes, ColumnState] = {}
    for _ in range(reader.unsigned()):
        name = reader.bytes()
        columns[name] = reader.column(base)
    reader.end()
    # The base is the newest's write time; of the deletions of that time the latest counts (row.Newest). It is found
    # again here rather than stored, so that the format has no second source for it.
    local = NO_DELETION if deletion is None or deletion.written != base else deletion.local
    for column in columns.values():
        if column.deletion is not None and column.deletion.written == base and column.deletion.local > local:
            local = column.deletion.local
    empty = marker is None and deletion is None and not columns
    return RowState(marker, deletion, columns, None if empty else Newest(base, local), bool(flags & _STRICT))


def encode_deletion(deletion: Deletion, end: bytes | None = None) -> bytes:
    """A partition's or range's deletion; `end` is the range's exclusive end, None where it is open."""
    out = BytesWriter()
    out.append(VERSION)
    out.append(end is not None)
    if end is not None:
        _put_bytes(out, end)
    _put_signed(out, deletion.written)
    _put_signed(out, deletion.local)
    return out.getvalue()


def decode_deletion(encoded: bytes) -> tuple[Deletion, bytes | None]:
    """The deletion and the range's end. Raises DecodeError for other bytes."""
    reader = _Reader(encoded)
    end = reader.bytes() if reader.byte() & 1 else None
    deletion = Deletion(reader.signed(), reader.signed())
    reader.end()
    return deletion, end


def encode_truncations(state: TruncationState) -> bytes:
    """The bytes of a table's truncations; equal states give equal bytes."""
    out = BytesWriter()
    out.append(_TRUNCATIONS_VERSION)
    _put(out, len(state.statements))
    for statement in state.statements:
        _put_signed(out, statement)
    _put(out, len(state.latest))
    for truncation in state.latest:
        _put_bytes(out, truncation.host.encode())
        _put_signed(out, truncation.written)
        _put_signed(out, truncation.statement)
        out.append(truncation.upto is not None)
        if truncation.upto is not None:
            _put_signed(out, truncation.upto.epoch)
            _put_signed(out, truncation.upto.segment)
            _put_signed(out, truncation.upto.offset)
    return out.getvalue()


def decode_truncations(encoded: bytes) -> TruncationState:
    """The state of these bytes. Raises DecodeError for other bytes."""
    reader = _Reader(encoded, _TRUNCATIONS_VERSION)
    statements = tuple([reader.signed() for _ in range(reader.unsigned())])
    state = TruncationState(tuple([reader.truncation() for _ in range(reader.unsigned())]), statements)
    reader.end()
    return state


def newest(state: RowState) -> int:
    """The newest write time (row.Newest) of a state, in microseconds; 0 for an empty one."""
    return 0 if state.newest is None else state.newest.written


def _put_column(out: BytesWriter, name: bytes, column: ColumnState, base: int) -> None:
    _put_bytes(out, name)
    out.append((_COLUMN_DELETION if column.deletion is not None else 0) | (_COUNTER if column.counter else 0))
    if column.deletion is not None:
        _put_deletion(out, column.deletion, base)
    _put(out, len(column.cells))
    if len(column.cells) == 1:  # as simple columns have
        for path, cell in column.cells.items():
            _put_cell(out, path, cell, base)
        return
    for path in sorted(column.cells, key=_path_bytes):
        _put_cell(out, path, column.cells[path], base)


def _path_bytes(path: bytes | None) -> bytes:
    return path or b""


def _put_cell(out: BytesWriter, path: bytes | None, cell: CellState, base: int) -> None:
    flags = (_KEY if path is not None else 0) | (_VALUE if cell.value is not None else 0)
    flags |= (_TIME if cell.written != base else 0) | (_OWN_PATH if cell.path is not None else 0)
    flags |= (_TTL if cell.ttl is not None else 0) | (_EXPIRES if cell.expires is not None else 0)
    out.append(flags)
    if path is not None:
        _put_bytes(out, path)
    if cell.written != base:
        _put(out, base - cell.written)
    if cell.ttl is not None:
        _put(out, cell.ttl)
    if cell.expires is not None:
        _put_signed(out, cell.expires)
    if cell.value is not None:
        _put_bytes(out, cell.value)
    if cell.path is not None:
        _put_bytes(out, cell.path)


def _put_expiry(out: BytesWriter, ttl: int | None, expires: int | None) -> None:
    out.append((_TTL if ttl is not None else 0) | (_EXPIRES if expires is not None else 0))
    if ttl is not None:
        _put(out, ttl)
    if expires is not None:
        _put_signed(out, expires)


def _put_deletion(out: BytesWriter, deletion: Deletion, base: int) -> None:
    _put(out, base - deletion.written)
    _put_signed(out, deletion.local)


def _put_bytes(out: BytesWriter, octets: bytes) -> None:
    _put(out, len(octets))
    out.write(octets)


def _put_signed(out: BytesWriter, value: int) -> None:
    out.write(write_signed(value))


def _put(out: BytesWriter, value: int) -> None:
    if value < _ONE_BYTE:
        out.append(value)
    else:
        out.write(write_unsigned(value))


class _Reader:
    """Walks over one encoded value; every read past its end is a TruncatedError."""

    def __init__(self, encoded: bytes, supported: int = VERSION) -> None:
        self._bytes = encoded
        self._at = 0
        version = self.byte()
        if version != supported:
            raise UnsupportedError(f"row state of format {version}: this Tailrace reads {supported}")

    def byte(self) -> int:
        if self._at >= len(self._bytes):
            raise TruncatedError("row state ends too early")
        self._at += 1
        return self._bytes[self._at - 1]

    def unsigned(self) -> int:
        offset = self._at
        if offset < len(self._bytes) and self._bytes[offset] < _ONE_BYTE:
            self._at = offset + 1
            return self._bytes[offset]
        value, self._at = read_unsigned(self._bytes, self._at)
        return value

    def signed(self) -> int:
        value, self._at = read_signed(self._bytes, self._at)
        return value

    def bytes(self) -> builtins.bytes:
        length = self.unsigned()
        start = self._at
        end = start + length
        if end > len(self._bytes):
            raise TruncatedError("row state ends too early")
        self._at = end
        return self._bytes[start:end]

    def truncation(self) -> HostTruncation:
        host, written, statement = self.host(), self.signed(), self.signed()
        upto = Position(self.signed(), self.signed(), self.signed()) if self.byte() & 1 else None
        return HostTruncation(host, written, upto, statement)

    def host(self) -> str:
        try:
            return self.bytes().decode()
        except UnicodeDecodeError:
            raise CorruptError("truncations name a host in other bytes than UTF-8") from None

    def expiry(self, flags: int) -> tuple[int | None, int | None]:
        return (self.unsigned() if flags & _TTL else None), (self.signed() if flags & _EXPIRES else None)

    def deletion(self, base: int) -> Deletion:
        written = base - self.unsigned()
        return Deletion(written, self.signed())

    def column(self, base: int) -> ColumnState:
        kind = self.byte()
        deletion = self.deletion(base) if kind & _COLUMN_DELETION else None
        column = ColumnState(deletion, counter=bool(kind & _COUNTER))
        for _ in range(self.unsigned()):
            flags = self.byte()
            if flags == _VALUE:  # as most are
                column.cells[None] = CellState(base, None, None, self.bytes())
                continue
            key = self.bytes() if flags & _KEY else None
            written = base - self.unsigned() if flags & _TIME else base
            ttl, expires = self.expiry(flags)
            value = self.bytes() if flags & _VALUE else None
            path = self.bytes() if flags & _OWN_PATH else None
            column.cells[key] = CellState(written, ttl, expires, value, path)
        return column

    def end(self) -> None:
        if self._at != len(self._bytes):
            raise CorruptError(f"row state has {len(self._bytes) - self._at} bytes after its end")
