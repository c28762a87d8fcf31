"""The short way through row images: who follows them, and nothing else, has the rows that SELECT answered.

The changes arrive in any order, a quarter of them twice. Some batches come again, to a process that has just begun.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Final
from uuid import UUID

from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import Delivered, Piece, RecordId
from tailrace_spark.batch.row_image import Imaged, RowImage
from tailrace_spark.shaping import split_conditions
from tailrace_spark.sinks.images.store import ImageStore
from tests.oracle.comparison import Difference, Row, differ, row_of
from tests.oracle.direct import Recorded, cut, in_any_order
from tests.oracle.documents import Documents, moment
from tests.oracle.filtering import TableFilter

_TOPIC: Final = "images"
_AGAIN: Final = 0.25
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def replay_images(recorded: Recorded, url: str, filters: Mapping[str, TableFilter]) -> list[Difference]:
    """How the rows of a follower differ from the answers; `url` is a new database's, of the images' state."""
    rows, random = FollowedRows(), Random(recorded.seed)
    now = recorded.began
    conditions, _ = split_conditions({name: one.where for name, one in filters.items()}, "stream.where")

    def opened() -> ImageStore:
        store = ImageStore(url, clock=lambda: now)
        store.filter_rows(conditions)
        return store

    batches = list(_batches(recorded, random))
    step = (recorded.asked - recorded.began) / len(batches)
    store = opened()
    try:
        for number, batch in enumerate(batches):
            now = recorded.asked if number == len(batches) - 1 else recorded.began + step * number
            rows.follow(_imaged(store, batch, random))
            if random.random() < _AGAIN:
                store.close()
                store = opened()
                now += step / 2
                rows.follow(_imaged(store, batch, random))  # cut otherwise
    finally:
        store.close()
    return [difference for answer in recorded.answers for difference in differ(answer, rows.of(answer.table))]


def _batches(recorded: Recorded, random: Random) -> Iterator[list[Delivered]]:
    """All changes in the order in which they are in the topic; at last one of each table again, for what expired."""
    arriving = [Delivered(RecordId(_TOPIC, 0, 0), change) for change in recorded.changes]
    arriving = in_any_order(arriving + random.sample(arriving, len(arriving) // 4), random)
    last = {delivered.change.table.id: delivered for delivered in arriving}
    placed = [
        replace(delivered, record_id=RecordId(_TOPIC, 0, offset))
        for offset, delivered in enumerate([*arriving, *last.values()])
    ]
    yield from cut(placed[: len(arriving)], random, 400)
    yield placed[len(arriving) :]


def _imaged(store: ImageStore, batch: list[Delivered], random: Random) -> dict[int, Imaged]:
    pieces = [Piece(tuple(piece)) for piece in cut(batch, random, 150)]
    images: dict[int, Imaged] = {}
    for piece in store.imaged(pieces):
        assert not piece.dead_letters, piece.dead_letters
        for delivered in piece.changes:
            assert delivered.images is not None
            images[delivered.record_id.offset] = delivered.images
    return images


class FollowedRows:
    """The rows of each table as their last images show them; images of a place that came before are equal."""

    def __init__(self) -> None:
        self._rows: dict[UUID, dict[Row, RowImage]] = {}
        self._seen: dict[int, object] = {}

    def follow(self, images: Mapping[int, Imaged]) -> None:
        for offset, imaged in sorted(images.items()):
            value = imaged.value()
            assert self._seen.setdefault(offset, value) == value, offset
            if self._seen[offset] is not value:
                continue
            assert imaged.images is not None, f"images of {offset} cannot be told"
            assert imaged.expired is not None, f"what had expired at {offset} cannot be told"
            rows = self._rows.setdefault(imaged.table.id, {})
            for image in (*imaged.expired, *imaged.images):
                self._take(rows, image, imaged.table)

    @staticmethod
    def _take(rows: dict[Row, RowImage], image: RowImage, table: Table) -> None:
        clustering = row_of(table, image.key, imaged_form)[len(table.partition_key) : len(table.key)]
        key = (image.static, _partition_of(table, image), clustering)
        before = rows.pop(key, None)
        assert (before is None) == (image.before is None), f"{table} {key}: {image.op}, and before it {before}"
        if image.after is not None:
            rows[key] = image

    def of(self, table: Table) -> list[Row]:
        """As SELECT answers: with the static row in each row of its partition, or alone where that has no other."""
        static: dict[Row, RowImage] = {}
        others: list[tuple[Row, RowImage]] = []
        for image in self._rows.get(table.id, {}).values():
            partition = _partition_of(table, image)
            if image.static:
                static[partition] = image
            else:
                others.append((partition, image))
        alone = static.keys() - {partition for partition, _ in others}
        return [
            *(_row(table, image, static.get(partition)) for partition, image in others),
            *(_row(table, static[partition]) for partition in alone),
        ]


def _partition_of(table: Table, image: RowImage) -> Row:
    """By the values as they are written: of equal decimals with other scales each is a partition of its own."""
    return tuple(repr(image.key[column.name]) for column in table.partition_key)


def _row(table: Table, image: RowImage, static: RowImage | None = None) -> Row:
    more = {} if static is None else static.after or {}
    return row_of(table, {**more, **(image.after or {}), **image.key}, imaged_form)


imaged_form: Final = Documents(
    {
        "blob": bytes.fromhex,
        "timestamp": lambda milliseconds: moment(_EPOCH + timedelta(milliseconds=milliseconds)),
        "date": lambda days: (_EPOCH + timedelta(days=days)).date().isoformat(),
    }
).form
"""The one form of a value of an image, which is that of change-json.md."""
