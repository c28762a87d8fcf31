"""The bytes of a mutation, read forward: headers, rows and range markers of partition updates, into numbers.

The one definition of the payload's format: `mutation` makes objects of what is read here, `changes.transcode` Avro.
Whatever the bytes are, reading stays inside of them. Bytes that are missing at the end raise IndexError or
TruncatedError, which the callers turn into the error that names the table.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i64_be
from librt.vecs import vec
from mypy_extensions import i64

from tailrace.commitlog.descriptor import SegmentVersion
from tailrace.commitlog.model import RangeMarker
from tailrace.commitlog.plans import COMPLEX, VARIABLE, HeaderPlan, TablePlan, table_plan_of
from tailrace_schemas.change import Deletion
from tailrace_schemas.errors import CorruptError, TruncatedError, UnsupportedError
from tailrace_schemas.table import Table
from tailrace_schemas.tokens import word_of
from tailrace_schemas.transcode.primitives import stands_at
from tailrace_schemas.transcode.row import NONE, NULL, RowCells

# UnfilteredRowIteratorSerializer's flags.
IS_EMPTY: Final = 0x01
HAS_PARTITION_DELETION: Final = 0x04
HAS_STATIC_ROW: Final = 0x08
HAS_ROW_ESTIMATE: Final = 0x10
_IS_REVERSED: Final = 0x02
_PARTITION_FLAGS: Final = 0x1F

# UnfilteredSerializer's flags.
END_OF_PARTITION: Final = 0x01
IS_MARKER: Final = 0x02
_HAS_TIMESTAMP: Final = 0x04
_HAS_TTL: Final = 0x08
_HAS_DELETION: Final = 0x10
_HAS_ALL_COLUMNS: Final = 0x20
_HAS_COMPLEX_DELETION: Final = 0x40
_EXTENDED: Final = 0x80
# The second byte's.
_IS_STATIC: Final = 0x01
_IS_SHADOWABLE: Final = 0x02
# Cell.Serializer's flags.
_IS_DELETED: Final = 0x01
_IS_EXPIRING: Final = 0x02
_HAS_EMPTY_VALUE: Final = 0x04
_USE_ROW_TIMESTAMP: Final = 0x08
_USE_ROW_TTL: Final = 0x10
_CELL_FLAGS: Final = 0x1F

# Mutation's flags of version 9: its transaction may conflict with others (says nothing about the bytes).
_POTENTIAL_CONFLICTS: Final = 0x01

# ClusteringPrefix.Kind: bounds by what they do, boundaries.
_START_BOUNDS: Final = frozenset({1, 7})
_END_BOUNDS: Final = frozenset({0, 6})
_BOUNDARIES: Final = frozenset({2, 5})

# EncodingStats counts from 2015-09-22T00:00:00Z, in microseconds and in seconds.
_EPOCH_MICROSECONDS: Final = 1_442_880_000_000_000
_EPOCH_SECONDS: Final = 1_442_880_000

_WORD: Final = (1 << 64) - 1
_SIGN: Final = 1 << 63
# Sums of two numbers below this stay within a signed word.
_PLAIN: Final = 1 << 61
_BITS_32: Final = 0xFFFFFFFF
_WORD_63: Final = (1 << 63) - 1
# Clustering values are announced in groups of 32, two bits each.
_GROUP: Final = 32


def check_flags(payload: bytes) -> None:
    """The flags that a mutation of version 9 begins with. Raises TruncatedError, UnsupportedError."""
    if not payload:
        raise TruncatedError("mutation: its flags are missing")
    if payload[0] > _POTENTIAL_CONFLICTS:
        # A flag may announce bytes of its own: what follows cannot be told.
        raise UnsupportedError(f"mutation flags {payload[0]:#04x} are newer than this Tailrace reads")


class Reader:
    """Reads one payload after another; `at` is the offset of the next byte, `cells` the row that was read last.

    `timestamp` (microseconds), `local` and `ttl` (seconds) are the least values of the update's header, from which all
    others count.
    """

    def __init__(self) -> None:
        # Most updates have the table, and the columns, of the one before: its bytes are compared, not copied.
        self._table_plan: TablePlan | None = None
        self._table_id = bytes(16)
        self._listed_columns = b""
        self._listing: TablePlan | None = None
        self._listed_plan: HeaderPlan | None = None
        self.data = b""
        self.at: i64 = 0
        self.size: i64 = 0
        self.cells = RowCells()
        self._metadata_epochs = False
        self._unsigned = False
        self._timestamp: i64 = 0
        self.has_least = True
        """Whether something in the update has the least time that its head says, or the microsecond after it: of what
        overwrites a collection some releases count the deletion there, and do not log it (CASSANDRA-20449)."""
        self._is_plain = True
        self._local: i64 = 0
        self._ttl: i64 = 0

    def open(self, data: bytes, version: SegmentVersion) -> i64:
        """Begin with a payload: the number of its partition updates."""
        self.data = data
        self.at = 0
        self.size = len(data)
        self._metadata_epochs = version.metadata_epochs
        self._unsigned = version.unsigned_deletion_times
        if version.metadata_epochs:
            check_flags(data)
            self.at = 1
        count = self.vint()
        if count == 0:
            raise CorruptError("mutation: no partition update")
        if count < 0:
            raise TruncatedError(f"mutation: {count & _WORD_63} and more partition updates in {self.size} bytes")
        return count

    # -- numbers

    def vint(self) -> i64:
        """The next unsigned vint, its 64 bits as a signed word (VIntCoding.readUnsignedVInt)."""
        offset = self.at
        first: i64 = self.data[offset]
        if first < 128:
            self.at = offset + 1
            return first
        return self._long_vint(first)

    def _long_vint(self, first: i64) -> i64:
        data = self.data
        offset = self.at + 1
        extra: i64 = 1
        # VIntCoding.numberOfExtraBytesToRead: the leading one bits of the first byte count the bytes behind it.
        while first & (128 >> extra):
            extra += 1
        if offset + extra > self.size:
            raise TruncatedError(f"a vint of {extra + 1} bytes ends after {self.size - offset + 1}", offset=self.at)
        self.at = offset + extra
        # Java holds the result in a long: nine bytes may be a negative number, so differences wrap around (_wrapped).
        if extra == 8:
            return read_i64_be(data, offset)
        value: i64 = first & (255 >> extra)
        while offset < self.at:
            value = value << 8 | data[offset]
            offset += 1
        return value

    def length(self) -> i64:
        """The next vint as a length of bytes that are there."""
        size = self.vint()
        if size < 0 or size > self.size - self.at:
            raise TruncatedError(f"{size & _WORD_63} bytes are announced, {self.size - self.at} are left")
        return size

    def skip(self, size: i64) -> i64:
        """Go over `size` bytes, which must be there; the offset that they begin at."""
        start = self.at
        if size > self.size - start:
            raise TruncatedError(f"a value of {size} bytes, {self.size - start} are left")
        self.at = start + size
        return start

    def _written(self) -> i64:
        delta = self.vint()
        if 0 <= delta <= 1:
            self.has_least = True
        if self._is_plain and 0 <= delta < _PLAIN:
            return self._timestamp + delta
        return _wrapped(delta, self._timestamp)

    def _local_time(self) -> i64:
        """A local deletion time in seconds since the epoch (Cell.decodeLocalDeletionTime)."""
        local = (self.vint() + self._local) & _BITS_32
        return local if self._unsigned else _signed_32(local)

    def _time_to_live(self) -> i64:
        return _signed_32((self.vint() + self._ttl) & _BITS_32)

    # -- an update's head

    def table_id(self) -> bytes:
        """The 16 bytes that name the next update's table."""
        if self.size - self.at < 16:
            raise TruncatedError("mutation: ends inside of a table id")
        start = self.skip(16)
        if not stands_at(self.data, start, self._table_id):
            self._table_id = self.data[start : start + 16]
        return self._table_id

    def table_plan(self, table: Table) -> TablePlan:
        """The plan of the update's table; most often that of the one before."""
        table_plan = self._table_plan
        if table_plan is None or table_plan.table is not table:
            table_plan = self._table_plan = table_plan_of(table)
        return table_plan

    def metadata_epoch(self) -> i64:
        """The epoch of the cluster's metadata that the writer knew the table by; NONE before version 9."""
        return self.vint() if self._metadata_epochs else NONE

    def key(self) -> bytes:
        """The serialized partition key."""
        size = self.length()
        start = self.skip(size)
        return self.data[start : start + size]

    def flags(self) -> i64:
        """The update's flags."""
        flags: i64 = self.data[self.at]
        self.at += 1
        # The log is written by PartitionUpdate's iterator, which is never reversed.
        if flags > _PARTITION_FLAGS or flags & _IS_REVERSED:
            raise CorruptError(f"partition flags {flags:#04x}")
        return flags

    def stats(self) -> None:
        """EncodingStats: the least timestamp, local deletion time and ttl.

        What a client writes has its own least time there; what is read from a data file has that of the whole file.
        """
        self.has_least = False
        delta = self.vint()
        if 0 <= delta < _PLAIN:
            self._timestamp = delta + _EPOCH_MICROSECONDS
        else:
            self._timestamp = _wrapped(delta, _EPOCH_MICROSECONDS)
        self._is_plain = -_PLAIN < self._timestamp < _PLAIN
        self._local = (self.vint() + _EPOCH_SECONDS) & _BITS_32
        self._ttl = _signed_32(self.vint() & _BITS_32)

    def plan(self, table_plan: TablePlan) -> HeaderPlan:
        """The columns of a header list, by the definition; raises UnknownColumnError."""
        start = self.at
        if table_plan is self._listing and stands_at(self.data, start, self._listed_columns):
            plan = self._listed_plan
            if plan is not None:
                self.at = start + len(self._listed_columns)
                return plan
        count = self.vint()
        if count < 0 or count > self.size:
            raise TruncatedError(f"a header of {count & _WORD_63} columns in {self.size} bytes")
        while count > 0:
            size = self.length()
            self.at += size
            count -= 1
        listed = self.data[start : self.at]
        plan = table_plan.plan(listed)
        self._listing, self._listed_columns, self._listed_plan = table_plan, listed, plan
        return plan

    # -- deletions, clustering values, markers

    def deletion(self) -> Deletion | None:
        """A deletion time, None for LIVE (SerializationHeader.readDeletionTime)."""
        written = self._written()
        local = self._local_time()
        # Its first field alone marks LIVE; 4.x and 5.0 write different local deletion times beside it.
        return None if _is_live(written) else Deletion(written, local)

    def _clustering(self, sizes: vec[i64], count: i64) -> None:
        """The values of the first `count` clustering columns, into `cells` (ClusteringPrefix.Serializer)."""
        cells = self.cells
        bits: i64 = 0
        index: i64 = 0
        while index < count:
            # ClusteringPrefix.Serializer.makeHeader: two bits a value, 32 values a vint; even bit empty, odd bit null.
            if index % _GROUP == 0:
                bits = self.vint()
            if bits & 3:
                start = NULL if bits & 2 else self.at
                cells.add_clustering(start, start)
            else:
                size = sizes[index]
                if size == VARIABLE:
                    size = self.length()
                start = self.skip(size)
                cells.add_clustering(start, start + size)
            bits = bits >> 2
            index += 1

    def clustering_values(self) -> tuple[bytes | None, ...]:
        """The clustering values that were read last."""
        cells, data = self.cells, self.data
        return tuple(
            [
                None if cells.clustering_start[i] == NULL else data[cells.clustering_start[i] : cells.clustering_end[i]]
                for i in range(cells.clusterings)
            ]
        )

    def range_marker(self, table_plan: TablePlan) -> RangeMarker:
        """The range tombstone marker at its flags byte (UnfilteredSerializer)."""
        data = self.data
        kind: i64 = data[self.at + 1]
        count: i64 = i64(data[self.at + 2]) << 8 | i64(data[self.at + 3])
        self.at += 4
        if count > len(table_plan.clustering):
            raise CorruptError(f"range marker: {count} values for {len(table_plan.clustering)} clustering columns")
        self.cells.clear()
        self._clustering(table_plan.clustering, count)
        values = self.clustering_values()
        first = self.deletion()
        if kind in _START_BOUNDS:
            return RangeMarker(kind=kind, values=values, open=first)
        if kind in _END_BOUNDS:
            return RangeMarker(kind=kind, values=values, close=first)
        # ClusteringPrefix.Kind has static and row kinds too, which no range marker can be.
        if kind not in _BOUNDARIES:
            raise CorruptError(f"range marker: kind {kind} is neither bound nor boundary")
        # The closing deletion stands first.
        return RangeMarker(kind=kind, values=values, close=first, open=self.deletion())

    # -- rows

    def row(self, table_plan: TablePlan, plan: HeaderPlan, static: bool) -> None:
        """The row at its flags byte, into `cells` (UnfilteredSerializer.serialize, messaging form)."""
        data, cells = self.data, self.cells
        cells.clear()
        flags: i64 = data[self.at]
        extended: i64 = 0
        self.at += 1
        if flags & _EXTENDED:
            extended = data[self.at]
            self.at += 1
        # A shadowable deletion occurs in materialized views only, and is deprecated: read as the row deletion it is.
        if flags & (END_OF_PARTITION | IS_MARKER) or extended & ~_IS_SHADOWABLE != (_IS_STATIC if static else 0):
            raise CorruptError(f"{'static ' if static else ''}row: flags {flags:#04x}, {extended:#04x}")
        # Clustering.STATIC_CLUSTERING is not written: the second byte of flags marks the static row.
        if not static:
            self._clustering(table_plan.clustering, len(table_plan.clustering))
        if flags & _HAS_TIMESTAMP:
            # Its timestamp, then ttl, then expiry. (In cells the ttl comes last.)
            cells.marked = True
            cells.row_written = self._written()
            if flags & _HAS_TTL:
                cells.row_ttl = self._time_to_live()
                cells.row_expires = self._local_time()
        if flags & _HAS_DELETION:
            written = self._written()
            local = self._local_time()
            if not _is_live(written):
                cells.deleted = True
                cells.deleted_written = written
                cells.deleted_local = local
        with_deletions = flags & _HAS_COMPLEX_DELETION != 0
        sizes = plan.sizes
        # HAS_ALL_COLUMNS is of the update's columns, not of the table's: a header lists those that the update has.
        present = plan.everything if flags & _HAS_ALL_COLUMNS else self.subset(plan)
        for index in present:
            self._column(plan, index, sizes[index], with_deletions)

    def subset(self, plan: HeaderPlan) -> vec[i64]:
        """The indexes of the columns that a row has (Columns.Serializer)."""
        coded = self.vint()
        if coded == 0:
            return plan.everything
        return self._listed(len(plan.columns), coded) if plan.is_wide else plan.subset(coded)

    def _listed(self, count: i64, missing: i64) -> vec[i64]:
        """The subset of a header of 64 columns and more: indexes of the present or of the missing ones."""
        present = count - missing
        if missing < 0 or present < 0:
            raise CorruptError(f"column subset without {missing & _WORD_63} of {count} columns")
        # Columns.Serializer.serializeLargeSubset: of fewer than half, by an integer division, the present ones.
        lists_present = present < count // 2
        remaining = present if lists_present else missing
        listed: list[int] = []
        last: i64 = -1
        while remaining > 0:
            index = self.vint()
            if index < 0 or index >= count or index <= last:
                raise CorruptError(f"column subset names column {index} of {count} after {last}")
            listed.append(index)
            last = index
            remaining -= 1
        if lists_present:
            return vec[i64](listed)
        absent = set(listed)
        return vec[i64]([index for index in range(count) if index not in absent])

    def _column(self, plan: HeaderPlan, column: i64, size: i64, with_deletions: bool) -> None:
        """What a row has of one column."""
        if size != COMPLEX:
            self._cell(plan, column, size)
            return
        cells = self.cells
        # HAS_COMPLEX_DELETION is the row's: each of its collections then has one, LIVE where it has none of its own.
        if with_deletions:
            written = self._written()
            local = self._local_time()
            if not _is_live(written):
                cells.add_deletion(column, written, local)
        count = self.vint()
        # Each cell takes a byte at least, so the count cannot be larger than what is left.
        if count < 0 or count > self.size - self.at:
            raise TruncatedError(f"{plan.columns[column].name}: {count & _WORD_63} cells in {self.size} bytes")
        first = cells.count
        while count > 0:
            self._cell(plan, column, size)
            count -= 1
        if plan.columns[column].type.kind == "udt":
            self._expect_order(plan, column, first)

    def _expect_order(self, plan: HeaderPlan, column: i64, first: i64) -> None:
        """Fields of a user type come once each, in their order (ComplexColumnData is sorted by path)."""
        data, cells = self.data, self.cells
        index = first + 1
        while index < cells.count:
            previous = data[cells.path_start[index - 1] : cells.path_end[index - 1]]
            if previous >= data[cells.path_start[index] : cells.path_end[index]]:
                raise CorruptError(
                    f"{plan.columns[column].name}: a field of its user type is out of order, or twice there"
                )
            index += 1

    def _cell(self, plan: HeaderPlan, column: i64, size: i64) -> None:
        """One cell (Cell.Serializer). Of size COMPLEX it has a path; values then have lengths."""
        data, cells = self.data, self.cells
        flags: i64 = data[self.at]
        self.at += 1
        if flags > _CELL_FLAGS:
            raise CorruptError(f"cell of {plan.columns[column].name}: flags {flags:#04x}")
        written: i64
        if not flags & _USE_ROW_TIMESTAMP:
            written = self._written()
        # USE_ROW_TIMESTAMP saves the bytes of a time that is the row marker's.
        elif cells.marked:
            written = cells.row_written
        else:
            name = plan.columns[column].name
            raise CorruptError(f"cell of {name}: takes its time from a row marker that is not there")
        ttl: i64 = NONE
        expires: i64 = NONE
        kinds = flags & (_IS_DELETED | _IS_EXPIRING)
        if flags & _USE_ROW_TTL:
            if kinds != _IS_EXPIRING or not cells.marked or cells.row_expires == NONE:
                name = plan.columns[column].name
                raise CorruptError(f"cell of {name}: takes a ttl from a row marker that has none")
            ttl, expires = cells.row_ttl, cells.row_expires
        elif kinds:
            if kinds == _IS_DELETED | _IS_EXPIRING:
                raise CorruptError(f"cell of {plan.columns[column].name}: both deleted and expiring")
            expires = self._local_time()
            if kinds == _IS_EXPIRING:
                ttl = self._time_to_live()
        index = cells.add_cell(column, written, ttl, expires)
        if size == COMPLEX:
            length = self.length()
            start = self.skip(length)
            cells.path_start[index] = start
            cells.path_end[index] = start + length
        end = self.at
        start = end
        if not flags & _HAS_EMPTY_VALUE:
            # In a collection values have lengths also of types of a fixed size (Cell.Serializer reads by the cell's own
            # type).
            if size < 0:
                size = self.length()
            start = self.skip(size)
            end = start + size
        if not flags & _IS_DELETED:
            cells.start[index] = start
            cells.end[index] = end


def _is_live(written: i64) -> bool:
    """Whether a deletion's time is Long.MIN_VALUE, which stands for none (DeletionTime.LIVE)."""
    return written == word_of(-0x80000000, 0)


def _wrapped(delta: int, base: int) -> int:
    """A sum of a vint and a signed 64-bit integer as Java's long has it: deltas wrap around."""
    return ((delta + base + _SIGN) & _WORD) - _SIGN


def _signed_32(value: i64) -> i64:
    """32 bits as Java's int."""
    return value - 0x100000000 if value > 0x7FFFFFFF else value
