"""A mutation to the Kafka messages of its changes, Cassandra's bytes to Avro's: the way that the agent goes.

What `split` says of the changes of a mutation and their order holds here too, and the tests hold both against each
other, byte for byte; objects are made where filters, JSON and people need them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from tailrace.changes.split import closes_inclusive, opens_inclusive
from tailrace.commitlog.model import RangeMarker
from tailrace.commitlog.mutation import UpdateVisitor, read_mutation
from tailrace.commitlog.plans import Plan, Shape
from tailrace.commitlog.reader import Reader
from tailrace_schemas.avro.encode import Encoder
from tailrace_schemas.change import Bound, Deletion, Origin, Source
from tailrace_schemas.table import Table
from tailrace_schemas.transcode.plans import RowPlan
from tailrace_schemas.transcode.primitives import write_long, write_text
from tailrace_schemas.transcode.record import Partition, RecordWriter

# Emptied when full, as the plans of commitlog are: what has that many shapes gains nothing from keeping them.
_MOST_WRITERS: Final = 1024
_MOST_PLANS: Final = 256
_ORIGINS: Final = {origin: number for number, origin in enumerate(Origin)}
_UNTRACKED: Final = UpdateVisitor()


class Message:
    """One change on its way to Kafka: `token` chooses the partition, `key` and `value` are framed Avro."""

    def __init__(self, table: Table, token: int, key: bytes, value: bytes) -> None:
        self.table = table
        self.token = token
        self.key = key
        self.value = value


class _Unit:
    """Changes that stay together, and where they stand among the others of their update (docs/contracts.md 1)."""

    def __init__(self, written: i64, deletes: bool, static: bool, place: i64, bodies: list[bytes]) -> None:
        self.written = written
        self.deletes = deletes
        self.static = static
        self.place = place
        self.bodies = bodies


def _rank(unit: _Unit) -> tuple[int, bool, bool, int]:
    return unit.written, unit.deletes, not unit.static, unit.place


class _TableWriter:
    """The record writer of one definition, with the plans of the headers that were met."""

    def __init__(self, table: Table, prefix: str) -> None:
        self.table = table
        self.records = RecordWriter(table, Encoder(table, prefix))
        self._plans: dict[Plan, RowPlan] = {}

    def plan(self, header: Plan) -> RowPlan:
        plan = self._plans.get(header)
        if plan is None:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            plan = self._plans[header] = self.records.plan(header.columns)
        return plan


class Transcoder:
    """Makes messages of mutations, with schemas of one topic prefix. Not for several threads at once."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._reader = Reader()
        self._writers: dict[Shape, _TableWriter] = {}

    def messages(
        self, payload: bytes, version: int, tables: Callable[[bytes], Table | None], source: Source
    ) -> list[Message]:
        """The messages of those updates whose table has cdc = true, in the order of `split.changes_of`.

        `tables` gives the definition in force for the 16 bytes of a table id; `index` and `count` of `source` are set
        here. Raises what `decode_mutation` raises.
        """
        updates: list[_Units] = []

        def units(shape: Shape) -> UpdateVisitor:
            if not shape.table.cdc:
                return _UNTRACKED
            updates.append(_Units(self._writer(shape)))
            return updates[-1]

        read_mutation(self._reader, payload, version, tables, units)
        return self._finished([(one, body) for one in updates for body in one.bodies()], source)

    def _finished(self, found: list[tuple[_Units, bytes]], source: Source) -> list[Message]:
        """The messages of all records, each with its source, the last field."""
        messages: list[Message] = []
        count = len(found)
        if not count:
            return messages
        # The same for all but for index and count, which stand in the middle.
        head, tail = _source_head(source), _source_tail(source)
        for index, (units, body) in enumerate(found):
            partition = units.partition()
            out = BytesWriter()
            out.write(body)
            out.write(head)
            write_long(out, index)
            write_long(out, count)
            out.write(tail)
            messages.append(Message(units.table, partition.token, partition.message_key, out.getvalue()))
        return messages

    def _writer(self, shape: Shape) -> _TableWriter:
        writer = self._writers.get(shape)
        if writer is None:
            if len(self._writers) >= _MOST_WRITERS:
                self._writers.clear()
            writer = self._writers[shape] = _TableWriter(shape.table, self._prefix)
        return writer


class _Units(UpdateVisitor):
    """The records of one update, as they are met."""

    def __init__(self, writer: _TableWriter) -> None:
        self.table = writer.table
        self._writer = writer
        self._records = writer.records
        self._key = b""
        self._partition: Partition | None = None
        self._units: list[_Unit] = []
        self._place: i64 = 0
        self._opened: tuple[int, Bound, Deletion] | None = None

    def begin(self, key: bytes, epoch: int | None) -> None:  # noqa: ARG002 - the definition was found by position
        self._key = key

    def partition(self) -> Partition:
        """What the changes share; the key is taken apart only where there is one."""
        if self._partition is None:
            self._partition = self._records.partition(self._key)
        return self._partition

    def bodies(self) -> list[bytes]:
        """All records, ordered."""
        units = self._units
        if len(units) == 1:
            return units[0].bodies
        units.sort(key=_rank)
        return [body for unit in units for body in unit.bodies]

    def delete_partition(self, deletion: Deletion) -> None:
        body = self._records.partition_deletion(self.partition(), deletion)
        self._units.append(_Unit(deletion.written, True, False, -1, [body]))

    def row(self, reader: Reader, header: Plan, static: bool) -> None:
        """A row's deletion and its data, one unit where the deletion is not the older."""
        cells, data = reader.cells, reader.data
        place: i64 = -1 if static else self._place
        if not static:
            self._place += 1
        plan = self._writer.plan(header)
        has_data = self._records.has_data(cells, plan)
        written = self._records.newest
        if cells.deleted:
            body = self._records.row_deletion(self.partition(), cells, data, static)
            if has_data and cells.deleted_written >= written:
                bodies = [body, self._records.row(self.partition(), cells, data, plan, static)]
                self._units.append(_Unit(cells.deleted_written, False, static, place, bodies))
                return
            self._units.append(_Unit(cells.deleted_written, True, static, place, [body]))
        if has_data:
            body = self._records.row(self.partition(), cells, data, plan, static)
            self._units.append(_Unit(written, False, static, place, [body]))

    def mark(self, marker: RangeMarker) -> None:
        """A range's end closes the one that is open, its start opens one; a boundary does both."""
        if self._opened is not None and marker.close is not None:
            place, start, deletion = self._opened
            end = Bound(marker.values, closes_inclusive(marker.kind))
            body = self._records.range_deletion(self.partition(), deletion, start, end)
            self._units.append(_Unit(deletion.written, True, False, place, [body]))
        self._opened = None
        if marker.open is not None:
            self._opened = self._place, Bound(marker.values, opens_inclusive(marker.kind)), marker.open
        self._place += 1


def _source_head(source: Source) -> bytes:
    out = BytesWriter()
    write_text(out, source.host.encode())
    write_text(out, source.datacenter.encode())
    write_long(out, source.epoch)
    write_long(out, source.segment)
    write_long(out, source.offset)
    return out.getvalue()


def _source_tail(source: Source) -> bytes:
    out = BytesWriter()
    # Hashing an Enum takes longer than all of the rest.
    write_long(out, 0 if source.origin is Origin.LOG else _ORIGINS[source.origin])
    out.append(u8(1 if source.durable else 0))
    write_long(out, source.seen)
    write_long(out, source.flags)
    return out.getvalue()
