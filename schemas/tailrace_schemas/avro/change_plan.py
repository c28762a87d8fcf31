"""Messages of one writer schema to changes, by a plan that is made once: what `Reader.change` says of their records.

It takes what most messages are: rows with simple columns, deletions of rows and partitions. Others, and bytes that are
no message, give None: they are decoded by way of their record. It is compiled.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from tailrace_schemas.avro.values import (
    MessageCursor,
    NoReader,
    OtherwiseError,
    ValueReader,
    read_optional,
    reader_of_type,
)
from tailrace_schemas.change import EXPIRED_TTL, Cell, Change, Deletion, Marker, Op, Origin, Source
from tailrace_schemas.cql.values import join_key
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table

_Times = tuple[int, int | None, int | None]

_OPS: Final = tuple(Op)
_ORIGINS: Final = tuple(Origin)


class ChangePlan:
    """Decodes the messages of a table's plain schema. It has no state of a message, so threads may share it."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._partition = [reader_of_type(column.type) for column in table.partition_key]
        self._clustering = [reader_of_type(column.type) for column in table.clustering]
        self._key_types = tuple(column.type for column in table.partition_key)
        self._columns = table.columns
        self._readers: list[ValueReader] = [
            NoReader() if column.type.multicell else reader_of_type(column.type) for column in table.columns
        ]
        self._names = [column.name.encode() for column in table.columns]
        self._multicell = [column.type.multicell for column in table.columns]
        # The same for many messages in a row: one reference, replaced as a whole.
        self._host: tuple[bytes, str] = (b"", "")
        self._datacenter: tuple[bytes, str] = (b"", "")

    def change(self, message: bytes, body: i64) -> Change | None:
        """The change whose record begins at `body`; None where it is to be decoded otherwise."""
        try:
            return self._change(MessageCursor(message, body))
        except (OtherwiseError, IndexError, OverflowError, ValueError):
            # OverflowError: an index beyond 62 bits, where the code is compiled.
            return None

    def _change(self, cursor: MessageCursor) -> Change:
        op = _OPS[cursor.long()]
        token = cursor.long()
        written = cursor.long()
        ttl = cursor.long() if cursor.present() else None
        expires = cursor.long() if cursor.present() else None
        digest = cursor.fixed(16)
        if not cursor.present():  # a truncation has no key
            raise OtherwiseError
        key = self._key(cursor)
        clustering = tuple([read_optional(reader, cursor) for reader in self._clustering])
        own_times: _Times = (written, ttl, expires)
        cells = self._cells(cursor, own_times)
        if cursor.present():  # a range
            raise OtherwiseError
        source = self._source(cursor)
        # By identity: an enum's hash is Python's own code.
        is_rowless = op is Op.DELETE_PARTITION
        if op is Op.DELETE_RANGE or op is Op.TRUNCATE:
            raise OtherwiseError
        static = not is_rowless and len(clustering) > 0 and all(value is None for value in clustering)
        expired = op is Op.DELETE and ttl == EXPIRED_TTL
        inserts = expired or op is Op.INSERT or (op is Op.READ and not static and not cells)
        return Change(
            op=op,
            table=self._table,
            token=token,
            key=key,
            clustering=None if is_rowless or static else clustering,
            static=static,
            marker=Marker(written, ttl, expires) if inserts else None,
            deletion=Deletion(written, expires or 0) if is_rowless or (op is Op.DELETE and not expired) else None,
            cells=cells,
            digest=digest,
            source=source,
        )

    def _key(self, cursor: MessageCursor) -> bytes:
        values: list[bytes] = []
        for reader in self._partition:
            value = read_optional(reader, cursor)
            if value is None:
                raise OtherwiseError
            values.append(value)
        return values[0] if len(values) == 1 else join_key(self._key_types, values)

    def _cells(self, cursor: MessageCursor, own_times: _Times) -> tuple[Cell, ...]:
        """The cells of the columns, which stand before what was deleted, and before the times that differ."""
        values: list[bytes | None] = [read_optional(reader, cursor) for reader in self._readers]
        deleted = self._deleted(cursor)
        if cursor.present():  # bytes that no value gives back
            raise OtherwiseError
        times = self._times(cursor) if cursor.present() else None
        cells: list[Cell] = []
        index: i64 = 0
        for column in self._columns:
            value = values[index]
            if value is not None or (deleted is not None and self._names[index] in deleted):
                if value is None and self._multicell[index]:
                    index += 1
                    continue
                written, ttl, expires = own_times
                if times is not None and (differing := times.get(self._names[index])) is not None:
                    written, ttl, expires = differing
                cells.append(Cell(column, None, written, ttl, expires, value))
            index += 1
        return tuple(cells)

    def _deleted(self, cursor: MessageCursor) -> list[bytes] | None:
        """The names of columns with a tombstone; None: there is none, as in most messages."""
        items = cursor.block()
        if items == 0:
            return None
        names: list[bytes] = []
        while items > 0:
            while items > 0:
                names.append(cursor.text())
                items -= 1
            items = cursor.block()
        return names

    def _times(self, cursor: MessageCursor) -> dict[bytes, _Times]:
        times: dict[bytes, _Times] = {}
        while (items := cursor.block()) > 0:
            while items > 0:
                name = cursor.text()
                if cursor.present():  # of an element
                    raise OtherwiseError
                written = cursor.long()
                ttl = cursor.long() if cursor.present() else None
                expires = cursor.long() if cursor.present() else None
                times[name] = written, ttl, expires
                items -= 1
        return times

    def _source(self, cursor: MessageCursor) -> Source:
        host = self._host
        if (octets := cursor.text()) != host[0]:
            host = self._host = octets, octets.decode()
        datacenter = self._datacenter
        if (octets := cursor.text()) != datacenter[0]:
            datacenter = self._datacenter = octets, octets.decode()
        position = Position(cursor.long(), cursor.long(), cursor.long())
        return Source(
            host[1],
            datacenter[1],
            position,
            cursor.long(),
            cursor.long(),
            _ORIGINS[cursor.long()],
            cursor.flag(),
            cursor.long(),
            cursor.long(),
        )
