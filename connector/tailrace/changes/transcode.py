"""A mutation to the Kafka messages of its changes, Cassandra's bytes to Avro's: the way that the agent goes.

Updates come in wire order. In an update the order of changes is that of the newest write time that each contains
(docs/contracts.md section 1). At a tie: data before deletions, then static before rows, rows in clustering order,
ranges once. A row's own deletion stands right before its data, also where it is not older.
Nothing of an update is left out, except rows that hold nothing but cells of dropped columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, mypyc_attr, u8

from tailrace.commitlog.model import RangeMarker
from tailrace.commitlog.mutation import MutationVisitor, UpdateVisitor, read_mutation
from tailrace.commitlog.plans import HeaderPlan, TablePlan
from tailrace.commitlog.reader import Reader
from tailrace_schemas.avro.encode import Encoder
from tailrace_schemas.change import STREAMED, UPDATE_BEGINS, UPDATE_ENDS, Bound, Deletion, Origin, Source
from tailrace_schemas.forms import PLAIN_FORMS, ValueForms
from tailrace_schemas.table import Table
from tailrace_schemas.transcode.plans import RowPlan
from tailrace_schemas.transcode.primitives import write_long, write_text
from tailrace_schemas.transcode.record import Partition, RecordWriter

# Emptied when full, as the plans of commitlog are: what has that many shapes gains nothing from keeping them.
_MOST_WRITERS: Final = 1024
_MOST_PLANS: Final = 256
# A mutation of more updates gives their room back.
_MOST_KEPT: Final = 64
# ClusteringPrefix.Kind ordinals by what they say of the range that they open, and of the one that they close.
_OPENS_INCLUSIVE: Final = {1: True, 2: True, 5: False, 7: False}
_CLOSES_INCLUSIVE: Final = {0: False, 2: False, 5: True, 6: True}
_ORIGINS: Final = {origin: number for number, origin in enumerate(Origin)}
UNTRACKED: Final = UpdateVisitor()


@mypyc_attr(acyclic=True)
class Message:
    """One change on its way to Kafka: `token` chooses the partition, `key` and `value` are framed Avro."""

    def __init__(self, table: Table, token: i64, key: bytes, value: bytes) -> None:
        self.table = table
        self.token: i64 = token
        self.key = key
        self.value = value


@mypyc_attr(acyclic=True)
class Unit:
    """One change, or two that stay together, and where they stand among the others of their update (contracts.md 1)."""

    def __init__(
        self, written: i64, deletes: bool, static: bool, wire_index: i64, body: bytes, data: bytes | None
    ) -> None:
        self.written = written
        self.deletes = deletes
        self.static = static
        self.wire_index = wire_index
        self.body = body
        self.data = data


def _rank(unit: Unit) -> tuple[int, bool, bool, int]:
    return unit.written, unit.deletes, not unit.static, unit.wire_index


class TableWriter:
    """The record writer of one definition, with the plans of the headers that were met."""

    def __init__(self, table: Table, prefix: str, forms: ValueForms) -> None:
        self.table = table
        self.records = RecordWriter(table, Encoder(table, prefix, forms=forms))
        self._plans: dict[HeaderPlan, RowPlan] = {}

    def plan(self, header: HeaderPlan) -> RowPlan:
        plan = self._plans.get(header)
        if plan is None:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            plan = self._plans[header] = self.records.plan(header.columns)
        return plan


class Transcoder:
    """Makes messages of mutations, with schemas of one topic prefix and values in these forms. Not for several threads
    at once."""

    def __init__(self, prefix: str, forms: ValueForms = PLAIN_FORMS) -> None:
        self.reader = Reader()
        self.updates = Updates(prefix, forms)
        self._out = BytesWriter()
        self._host = self._datacenter = ""
        self._node = bytes(2)  # of a node without names
        self._seen = self._reading = b""
        self._flags = 0
        self._epoch: i64 = -1
        self._segment: i64 = -1
        self._location = b""

    def messages(
        self,
        payload: bytes,
        version: int,
        tables: Callable[[bytes], Table | None],
        source: Source,
        dated: Callable[[bytes, int], Table | None] | None = None,
    ) -> list[Message]:
        """The messages of those updates whose table has cdc = true, in their order.

        `tables` gives the definition in force for the 16 bytes of a table id, `dated` that of a metadata epoch, where
        updates carry one. `index` and `count` of `source` are set here. Raises what `decode_mutation` raises.
        """
        messages: list[Message] = []
        self.begin(source)
        position = source.position
        self.add(messages, payload, version, tables, position.epoch, position.segment, position.offset, dated)
        return messages

    def begin(self, source: Source) -> None:
        """What the mutations that follow have in common: which node's they are, how and when they were read."""
        if source.host != self._host or source.datacenter != self._datacenter:
            out = BytesWriter()
            write_text(out, source.host.encode())
            write_text(out, source.datacenter.encode())
            self._host, self._datacenter, self._node = source.host, source.datacenter, out.getvalue()
            self._segment = -1
        self._flags = source.flags
        reading = BytesWriter()
        # Hashing an Enum takes longer than all of the rest.
        write_long(reading, 0 if source.origin is Origin.LOG else _ORIGINS[source.origin])
        reading.append(u8(1 if source.durable else 0))
        write_long(reading, source.seen)
        self._seen = reading.getvalue()
        self._reading = self._flagged(source.flags)

    def add(
        self,
        messages: list[Message],
        payload: bytes,
        version: int,
        tables: Callable[[bytes], Table | None],
        epoch: i64,
        segment: i64,
        offset: i64,
        dated: Callable[[bytes, int], Table | None] | None = None,
    ) -> None:
        """As `messages`, which see, added to those of other mutations, of what `begin` said and at this position.

        Where it raises, nothing was added.
        """
        updates = self.updates
        updates.begin()
        read_mutation(self.reader, payload, version, tables, updates, dated)
        count = updates.order()
        if not count:
            return
        if segment != self._segment or epoch != self._epoch:
            self.see(epoch, segment)
        index: i64 = 0
        for update_index in range(updates.used):
            update = updates.all[update_index]
            if updates.used > 1 or update.streamed:
                index = self._add_update(messages, update, offset, index, count)
                continue
            for unit in update.units:
                messages.append(self._message(update, unit.body, offset, index, count))
                index += 1
                if unit.data is not None:
                    messages.append(self._message(update, unit.data, offset, index, count))
                    index += 1

    def _add_update(self, messages: list[Message], update: Update, offset: i64, first: i64, count: i64) -> i64:
        """One update of several, or one that was streamed: its changes' flags say so, and which of them begins it and
        which ends it. The next's index."""
        bodies: list[bytes] = []
        for unit in update.units:
            bodies.append(unit.body)
            if unit.data is not None:
                bodies.append(unit.data)
        index = first
        last = first + len(bodies) - 1
        for body in bodies:
            messages.append(self.message_in(update, body, offset, index, count, first, last, True))
            index += 1
        return index

    def _flagged(self, flags: int) -> bytes:
        """How the mutation was read, with these flags."""
        out = BytesWriter()
        out.write(self._seen)
        write_long(out, flags)
        return out.getvalue()

    def see(self, epoch: i64, segment: i64) -> None:
        """Most mutations come from the same segment as the one before."""
        out = BytesWriter()
        out.write(self._node)
        write_long(out, epoch)
        write_long(out, segment)
        self._epoch, self._segment, self._location = epoch, segment, out.getvalue()

    def message_in(
        self, update: Update, body: bytes, offset: i64, index: i64, count: i64, first: i64, last: i64, several: bool
    ) -> Message:
        """The message of one change of an update whose changes have these indexes; one of several updates, or alone."""
        if not several and not update.streamed:
            return self._message(update, body, offset, index, count)
        reading = self._reading
        source_flags = self._flags | STREAMED if update.streamed else self._flags
        self._reading = self._flagged(source_flags | _update_flags(index, first, last, count))
        message = self._message(update, body, offset, index, count)
        self._reading = reading
        return message

    def _message(self, update: Update, body: bytes, offset: i64, index: i64, count: i64) -> Message:
        """The record with its last field, the source."""
        out = self._out
        out.truncate(0)
        out.write(body)
        out.write(self._location)
        write_long(out, offset)
        write_long(out, index)
        write_long(out, count)
        out.write(self._reading)
        partition = update.partition()
        return Message(update.table, partition.token, partition.message_key, out.getvalue())


def _update_flags(index: i64, first: i64, last: i64, count: i64) -> int:
    """What a change's `flags` say of its table's update, which has the indices from `first` to `last` of `count`.

    Nothing where `index` and `count` say it: in a mutation of one table.
    """
    begins = UPDATE_BEGINS if index == first and index > 0 else 0
    return begins | (UPDATE_ENDS if index == last and index < count - 1 else 0)


class Updates(MutationVisitor):
    """The updates of one mutation, in its order; their room is used again for the next one.

    The first `used` of `all` are of this mutation.
    """

    def __init__(self, prefix: str, forms: ValueForms) -> None:
        self.all: list[Update] = []
        self.used: i64 = 0
        self._prefix = prefix
        self._forms = forms
        self._writers: dict[TablePlan, TableWriter] = {}

    def begin(self) -> None:
        """Forget the mutation before."""
        if len(self.all) > _MOST_KEPT:
            self.all.clear()
        self.used = 0

    def update(self, table_plan: TablePlan) -> UpdateVisitor:
        if not table_plan.table.cdc:
            return UNTRACKED
        index = self.used
        if index == len(self.all):
            self.all.append(Update(self.writer(table_plan)))
        else:
            self.all[index].open(self.writer(table_plan))
        self.used = index + 1
        return self.all[index]

    def order(self) -> i64:
        """Put the changes of each update into their order; how many there are."""
        count: i64 = 0
        for index in range(self.used):
            count += self.all[index].order()
        return count

    def writer(self, table_plan: TablePlan) -> TableWriter:
        writer = self._writers.get(table_plan)
        if writer is None:
            if len(self._writers) >= _MOST_WRITERS:
                self._writers.clear()
            writer = self._writers[table_plan] = TableWriter(table_plan.table, self._prefix, self._forms)
        return writer


class Update(UpdateVisitor):
    """The records of one update, as they are met."""

    def __init__(self, writer: TableWriter) -> None:
        self.units: list[Unit] = []
        self.open(writer)

    def open(self, writer: TableWriter) -> None:
        """Begin with an update of the writer's table."""
        self.table = writer.table
        self._writer = writer
        self._records = writer.records
        self._key = b""
        self._partition: Partition | None = None
        self._wire_index: i64 = 0
        self.streamed = False
        self._opened: tuple[int, Bound, Deletion] | None = None
        if self.units:
            self.units.clear()

    def begin(self, key: bytes, metadata_epoch: int | None) -> None:  # noqa: ARG002 - the definition was found by position
        self._key = key

    def end(self, streamed: bool) -> None:
        self.streamed = streamed

    def partition(self) -> Partition:
        """What the changes share; the key is taken apart only where there is one."""
        if self._partition is None:
            self._partition = self._records.partition(self._key)
        return self._partition

    def order(self) -> i64:
        """Put the changes into their order; how many there are."""
        units = self.units
        if len(units) > 1:
            units.sort(key=_rank)
        count: i64 = 0
        for unit in units:
            count += 1 if unit.data is None else 2
        return count

    def delete_partition(self, deletion: Deletion) -> None:
        if self.wants(deletion.written, True, False, -1, 1):
            body = self._records.partition_deletion(self.partition(), deletion)
            self.add(Unit(deletion.written, True, False, -1, body, None))

    def wants(self, written: i64, deletes: bool, static: bool, wire_index: i64, changes: i64) -> bool:  # noqa: ARG002
        """Whether a unit of so many changes, at this index in the update, is to be made."""
        return True

    def add(self, unit: Unit) -> None:
        """The unit that was wanted."""
        self.units.append(unit)

    def row(self, reader: Reader, header: HeaderPlan, static: bool) -> None:
        """A row's deletion and its data, one unit where the deletion is not the older."""
        cells, data = reader.cells, reader.data
        wire_index: i64 = -1 if static else self._wire_index
        if not static:
            self._wire_index += 1
        plan = self._writer.plan(header)
        has_data = self._records.has_data(cells, plan)
        written = self._records.newest
        if cells.deleted:
            deleted = cells.deleted_written
            if has_data and deleted >= written:
                if self.wants(deleted, False, static, wire_index, 2):
                    body = self._records.row_deletion(self.partition(), cells, data, static)
                    record = self._records.row(self.partition(), cells, data, plan, static)
                    self.add(Unit(deleted, False, static, wire_index, body, record))
                return
            if self.wants(deleted, True, static, wire_index, 1):
                body = self._records.row_deletion(self.partition(), cells, data, static)
                self.add(Unit(deleted, True, static, wire_index, body, None))
        if has_data and self.wants(written, False, static, wire_index, 1):
            body = self._records.row(self.partition(), cells, data, plan, static)
            self.add(Unit(written, False, static, wire_index, body, None))

    def mark(self, marker: RangeMarker) -> None:
        """A range's end closes the one that is open, its start opens one; a boundary does both."""
        if self._opened is not None and marker.close is not None:
            wire_index, start, deletion = self._opened
            end = Bound(marker.values, _CLOSES_INCLUSIVE[marker.kind])
            if self.wants(deletion.written, True, False, wire_index, 1):
                body = self._records.range_deletion(self.partition(), deletion, start, end)
                self.add(Unit(deletion.written, True, False, wire_index, body, None))
        self._opened = None
        if marker.open is not None:
            self._opened = self._wire_index, Bound(marker.values, _OPENS_INCLUSIVE[marker.kind]), marker.open
        self._wire_index += 1
