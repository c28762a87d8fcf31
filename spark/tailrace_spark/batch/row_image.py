"""Row images as change logs carry them: a row by its key, before and after one change, in the values of its JSON.

What becomes of which change is `tailrace_spark.rowstate.visible`; docs/images.md says it for people.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tailrace_schemas.change import Change, Deletion
from tailrace_schemas.change_json import compact_json
from tailrace_schemas.cql.json_value import plain
from tailrace_schemas.cql.values import codec, split_key
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.table import Table
from tailrace_schemas.tokens import token
from tailrace_spark.rowstate.partition import Clustering, Partition
from tailrace_spark.rowstate.visible import Image, ImageOp, Images, Values

MOST_IMAGES: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RowImage:
    """One row, or with `static` the static row of a partition, before and after a change.

    `key` has the key's columns by name, the static row's those of the partition key. `before` and `after` have the
    other columns that are not null, None where there is no row, never both. `changed` names those that differ, in the
    table's order. Values are those of docs/change-json.md. `token` is the partition key's.
    """

    op: ImageOp
    key: Mapping[str, Any]
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    changed: tuple[str, ...]
    static: bool = False
    token: int = 0

    def value(self) -> dict[str, Any]:
        """The JSON object."""
        members = {
            "op": self.op.value,
            "key": self.key,
            "before": self.before,
            "after": self.after,
            "changed": list(self.changed),
        }
        return {**members, "static": True} if self.static else members


RowImages = tuple[RowImage, ...] | None
"""Those of one change; None where they cannot be told (docs/images.md says when)."""


@dataclass(frozen=True, slots=True)
class Imaged:
    """The images of one change, and the definition that shows them: the newest that was known.

    `expired` are those of rows of its table of which something has expired since the table's last change.
    """

    table: Table
    images: RowImages
    expired: RowImages = ()

    @property
    def untold(self) -> Imaged:
        """The same without the images, for a record that has no room for them."""
        return Imaged(self.table, None, () if self.expired == () else None)

    def value(self) -> dict[str, Any]:
        """The members of the change's JSON object; `expired` is left out where there is nothing of the kind."""
        members = {"images": _array(self.images)}
        return members if self.expired == () else {**members, "expired": _array(self.expired)}


class ImageMaker:
    """Makes the images of one table, as one definition shows it; with `matches`, as if it had no other rows.

    So a row that begins to match is created with all its columns, and one that ceases to match is deleted.
    """

    matches: Callable[[Values], bool] | None = None

    def __init__(self, table: Table) -> None:
        self.table = table
        self._images = Images(table)
        self._types = [column.type for column in table.partition_key]
        self._key_columns = [(c.name, codec(c.type).decode) for c in (*table.partition_key, *table.clustering)]

    def of(self, partition: Partition, change: Change, now: int) -> RowImages:
        """Take a change into its partition; see `Images.of_change`. None where a value is none of its type."""
        try:
            images = self._images.of_change(partition, change, now=now)
            return self._named(change.key or b"", images)
        except (DecodeError, ValueError):
            return None

    def expired(self, key: bytes, partition: Partition, since: int, now: int) -> tuple[RowImage, ...]:
        """What has expired of a partition's rows (`Images.expire`); none of a row that cannot be shown."""
        try:
            return self._named(key, self._images.expire(partition, since, now))
        except DecodeError:
            return ()

    def truncated(self, key: bytes, partition: Partition, erased: Deletion, now: int) -> tuple[RowImage, ...]:
        """What a truncation takes of a partition's rows. Raises DecodeError."""
        return self._named(key, self._images.truncate(partition, erased, now=now))

    def _named(self, key: bytes, images: Iterable[Image]) -> tuple[RowImage, ...]:
        key_token = token(key)
        asked_for = images if self.matches is None else _matching(images, self.matches)
        return tuple([self._row_image(key, key_token, image) for image in asked_for])

    def _row_image(self, key: bytes, token: int, image: Image) -> RowImage:
        return RowImage(
            op=image.op,
            key=self._key(key, image.clustering),
            before=_plain(image.before),
            after=_plain(image.after),
            changed=image.changed,
            static=image.clustering is None,
            token=token,
        )

    def _key(self, key: bytes, clustering: Clustering | None) -> dict[str, Any]:
        values: list[bytes | None] = [*split_key(self._types, key), *(clustering or ())]
        return {
            name: None if value is None else plain(decode(value))
            for (name, decode), value in zip(self._key_columns, values, strict=False)
        }


def _matching(images: Iterable[Image], matches: Callable[[Values], bool]) -> Iterator[Image]:
    """The images of the table that has the rows which match, and no others."""
    for image in images:
        old_row, new_row = (
            None if values is None or not matches(values) else values for values in (image.before, image.after)
        )
        if old_row is not None and new_row is not None:
            yield image
        elif (row := new_row if old_row is None else old_row) is not None:
            yield replace(image, before=old_row, after=new_row, changed=tuple(row))


def images_text(images: RowImages) -> bytes | None:
    """Images as they are kept: what `images_of_text` reads."""
    if images is None:
        return None
    objects = [{**image.value(), "token": image.token} for image in images]
    return compact_json(objects).encode()


def images_of_text(text: bytes | None) -> RowImages:
    """The images that were kept."""
    if text is None:
        return None
    return tuple(
        RowImage(
            op=ImageOp(image["op"]),
            key=image["key"],
            before=image["before"],
            after=image["after"],
            changed=tuple(image["changed"]),
            static=image.get("static", False),
            token=image["token"],
        )
        for image in json.loads(text)
    )


def _array(images: RowImages) -> list[dict[str, Any]] | None:
    """The JSON array; None also where there are more than MOST_IMAGES, which no record has room for."""
    if images is None or len(images) > MOST_IMAGES:
        return None
    return [image.value() for image in images]


def _plain(values: Values | None) -> dict[str, Any] | None:
    return None if values is None else {name: plain(value) for name, value in values.items()}
