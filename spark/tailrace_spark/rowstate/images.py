"""Images: what SELECT showed of a row before some changes, and what it shows after them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tailrace_schemas.change import Change, Deletion, Op
from tailrace_schemas.clustering import clustering_key
from tailrace_schemas.table import Table
from tailrace_spark.rowstate.partition import Clustering, ClusteringBytes, Partition, PartitionRow
from tailrace_spark.rowstate.visible import VisibleColumns

Values = dict[str, Any]
"""A visible row's columns that are not null, but those of the key, as `VisibleColumns.of` gives them."""


class ImageOp(Enum):
    """The visible effect of changes on a row; the values are Debezium's `op`."""

    CREATE = "c"
    UPDATE = "u"
    DELETE = "d"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One row, or the static row of a partition, before and after.

    `clustering` are the row's values in key order, None for the static row. `before` is None where there was no row,
    `after` where there is none; never both. `changed` names the columns whose value differs, in the table's order: of
    a row that comes or goes all that it has. It is empty where what was written is what was there.
    """

    clustering: Clustering | None
    before: Values | None
    after: Values | None
    changed: tuple[str, ...]

    @property
    def op(self) -> ImageOp:
        """Created where there was no row, deleted where there is none after it, else updated."""
        if self.before is None:
            return ImageOp.CREATE
        return ImageOp.DELETE if self.after is None else ImageOp.UPDATE


class Images:
    """Makes the images of one table, as one definition shows it.

    All of one partition's come in order: the static row first, then rows in clustering order. A row has one if its
    state has changed and it is visible before or after. So redelivered changes make none, nor do older ones, nor
    deletions of nothing. A write of the values that a row has already makes one in which nothing changed. The `after`
    of an image is the `before` of its row's next one.

    `now` is the moment, in seconds since the epoch: without it nothing expires.
    """

    def __init__(self, table: Table) -> None:
        self._columns = VisibleColumns(table)
        self._static = VisibleColumns(table, static=True)

    def apply(
        self,
        partition: Partition,
        changes: Iterable[Change],
        *,
        now: int | None = None,
    ) -> list[Image]:
        """Merge changes into their partition; the images of the rows that they changed.

        Deletions of ranges and of the partition become deletions of the rows that are known. Raises as
        `Partition.absorb` does, and DecodeError for a value that is none of its type; then some are merged already.
        """
        # Cassandra applies a mutation's update at once: a row that it replaces is updated, not deleted and created.
        previous_rows: dict[ClusteringBytes, PartitionRow | None] = {}
        for change in changes:
            for row_key, previous in partition.absorb(change):
                previous_rows.setdefault(row_key, previous)
        return self._images(partition, previous_rows, (None, now), (None, now))

    def of_change(self, partition: Partition, change: Change, *, now: int | None = None) -> list[Image]:
        """Merge one change; its images, as a log of changes has them beside the change itself.

        A change of one row, or of the static row, has one image wherever that row is visible before or after. It has
        one too where newer data covers it, and nothing changed. A deletion of a range or of the partition has one for
        each row that it changes visibly. Raises as `apply` does.
        """
        images = self.apply(partition, [change], now=now)
        if change.op in (Op.DELETE_PARTITION, Op.DELETE_RANGE):
            return [image for image in images if _differs(image)]
        # A copy, or a change that newer data covers, is published all the same: its image says that nothing changed
        # (docs/images.md).
        row_key = None if change.static else clustering_key(change.table, change.clustering or ())
        row = partition.rows.get(row_key)
        return images or self._images(partition, {row_key: row}, (None, now), (None, now))

    def truncate(self, partition: Partition, erased: Deletion, *, now: int | None = None) -> list[Image]:
        """The images of rows of which a truncation takes something (`truncation.absorb`); the partition stays."""
        rows: dict[ClusteringBytes, PartitionRow | None] = dict(partition.rows)
        return [image for image in self._images(partition, rows, (None, now), (erased, now)) if _differs(image)]

    def expire(self, partition: Partition, since: int, now: int) -> list[Image]:
        """The images of a partition's rows that expiry changed later than `since` and up to `now`, both in seconds."""
        due: dict[ClusteringBytes, PartitionRow | None] = {}
        for row_key, row in partition.rows.items():
            soonest = row.state.next_expiry(partition.covering(row_key), since)
            if soonest is not None and soonest <= now:
                due[row_key] = row
        return [image for image in self._images(partition, due, (None, since), (None, now)) if _differs(image)]

    def _images(
        self, partition: Partition, rows: dict[ClusteringBytes, PartitionRow | None], before: _When, after: _When
    ) -> list[Image]:
        """The images of these rows: as they were given, and as they are in the partition now."""
        images: list[Image] = []
        for row_key in sorted(rows, key=_static_first):
            former, present = rows[row_key], partition.rows.get(row_key)
            columns = self._static if row_key is None else self._columns
            before_values, after_values = _shown(columns, former, before), _shown(columns, present, after)
            if before_values is None and after_values is None:
                continue
            existing = present or former
            clustering = None if row_key is None or existing is None else existing.clustering
            images.append(_image(columns, clustering, before_values, after_values))
        return images


_When = tuple[Deletion | None, int | None]


def _static_first(row_key: ClusteringBytes) -> tuple[bool, bytes]:
    return row_key is not None, row_key or b""


def _shown(columns: VisibleColumns, row: PartitionRow | None, when: _When) -> Values | None:
    # Only the truncation is asked for: states have nothing that their partition's deletions cover (Partition.absorb).
    return None if row is None else columns.of(row.state, *when)


def _image(
    columns: VisibleColumns, clustering: Clustering | None, before: Values | None, after: Values | None
) -> Image:
    old, new = before or {}, after or {}
    names = [column.name for column in columns.columns if not _same(old.get(column.name), new.get(column.name))]
    return Image(clustering=clustering, before=before, after=after, changed=tuple(names))


def _same(old: Any, new: Any) -> bool:
    return bool(old == new) or repr(old) == repr(new)  # NaN is not equal to itself


def _differs(image: Image) -> bool:
    return bool(image.changed) or image.op is not ImageOp.UPDATE
