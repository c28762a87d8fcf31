"""Row images for queries of one's own: a micro-batch's records to changes with the rows before and after each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tailrace_schemas.avro import SchemaEntry
from tailrace_spark.batch.delivery import Piece
from tailrace_spark.batch.row_image import Imaged, RowImage
from tailrace_spark.rowstate.visible import ImageOp
from tailrace_spark.sinks.images.store import ImageStore
from tailrace_spark.source.decode import BY_OFFSET, pieces

__all__ = ["ImageOp", "ImageStore", "Imaged", "RowImage", "imaged"]


def imaged(
    records: Any, store: ImageStore, schemas: Mapping[bytes, SchemaEntry], *, early: bool = False
) -> Iterator[Piece]:
    """The changes of one micro-batch of `tailrace_spark.changes`, in pieces, each with its `images` (docs/images.md).

    `records` is the batch's `frame.toArrow()`, a pyarrow Table; its rows are taken by topic, partition and offset.
    `schemas` is a SchemaReader. Records that are no changes are the pieces' dead letters. Call it once the batch before
    is done with, and take all of it: a failed batch is redelivered with its changes. Raises ServiceError as ImageStore
    does, and KeyError for records without `value`, as of `changes(..., table=...)`. Raises SettingsError for changes
    that a crash may take back, unless `early` ones are accepted.
    """
    return store.imaged(pieces(records.sort_by(BY_OFFSET), schemas, early=early))
