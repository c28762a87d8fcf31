"""The images that changes have had, by their places in Kafka: what comes again has them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final

import sqlalchemy as sa

from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Delivered, RecordKey
from tailrace_spark.batch.row_image import RowImage, RowImages, images_of_text, images_text
from tailrace_spark.sinks.images.state import IMAGES
from tailrace_spark.sinks.state_store.bulk import insert
from tailrace_spark.sinks.state_store.dialects import MYSQL, MYSQL_TABLE, STATE_BYTES

Given = Mapping[RecordKey, tuple[RowImages, tuple[RowImage, ...]]]
"""By position in Kafka: the images of a change, and those of what had expired when it came."""

LONGEST_STREAM: Final = 100
STREAM_NAME: Final = sa.Text().with_variant(sa.String(LONGEST_STREAM), MYSQL)
GIVEN: Final = sa.Table(
    "tailrace_images_given",
    IMAGES,
    sa.Column("stream", STREAM_NAME, primary_key=True),
    sa.Column("topic", sa.Text().with_variant(sa.String(255), MYSQL), primary_key=True),
    sa.Column("partition", sa.Integer, primary_key=True),
    sa.Column("offset", sa.BigInteger, primary_key=True),
    sa.Column("images", STATE_BYTES),
    sa.Column("expired", STATE_BYTES),
    **MYSQL_TABLE,
)
_COLUMNS: Final = tuple(column.name for column in GIVEN.columns)


def given_before(
    connection: sa.Connection, stream: str, changes: Sequence[Delivered], seen_partitions: set[KafkaPartition]
) -> dict[RecordKey, tuple[RowImages, tuple[RowImage, ...]]]:
    """The images that these changes have had; they come by topic, partition and offset.

    Those of before this batch are forgotten, for each partition that is not among those `seen_partitions` in it.
    """
    images: dict[RecordKey, tuple[RowImages, tuple[RowImage, ...]]] = {}
    c = GIVEN.c
    for (topic, partition), some in groupby(changes, key=lambda change: change.record_id.key[:2]):
        offsets = [delivered.record_id.offset for delivered in some]
        of_partition = sa.and_(c.stream == stream, c.topic == topic, c.partition == partition)
        if (topic, partition) not in seen_partitions:
            seen_partitions.add((topic, partition))
            connection.execute(GIVEN.delete().where(of_partition, c.offset < offsets[0]))
        query = sa.select(c.offset, c.images, c.expired)
        for row in connection.execute(query.where(of_partition, c.offset >= min(offsets), c.offset <= max(offsets))):
            images[topic, partition, row.offset] = images_of_text(row.images), images_of_text(row.expired) or ()
    return images


def keep_given(connection: sa.Connection, stream: str, images: Given) -> None:
    """Keep the images that changes have now. Raises DBAPIError where one of them has had some."""
    rows = [
        (stream, *record_key, images_text(of_change), images_text(expired or None))
        for record_key, (of_change, expired) in images.items()
    ]
    insert(connection, GIVEN, _COLUMNS, rows)
