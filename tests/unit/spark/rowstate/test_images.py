"""Images: each row's before and after, told apart as created, updated and deleted; one chain without gaps."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace_schemas.change import Change, Deletion
from tailrace_spark.rowstate.partition import Clustering, Partition
from tailrace_spark.rowstate.visible import Image, ImageOp, Images, Values, VisibleColumns
from tests.properties import examples
from tests.unit.spark.cassandra import Log
from tests.unit.spark.changes import OF_ANY_BYTES, deletions, partition_changes
from tests.unit.tables import table

WIDE = table({"p": "int"}, {"c": "int"}, {"s": "int"}, {"v": "int", "w": "text", "x": "set<int>"})
LOG = Log(WIDE)
K = (1,)
updates = st.lists(st.lists(partition_changes(), min_size=1, max_size=3), max_size=5)
hidings = st.lists(st.one_of(st.none(), deletions), min_size=6, max_size=6)
Rows = dict[Clustering | None, Values]


def told(*changes: Change, known: list[Change] | None = None, at: int | None = None) -> list[tuple[object, ...]]:
    """(op, clustering value, before, after, changed) of what these changes do at once."""
    images, partition = Images(WIDE), Partition()
    images.apply(partition, known or [])
    return [
        (
            image.op.value,
            None if image.clustering is None else int.from_bytes(image.clustering[0] or b"", "big"),
            image.before,
            image.after,
            image.changed,
        )
        for image in images.apply(partition, changes, now=at)
    ]


FIRST = LOG.insert(K, (1,), 1, v=1, w="a")
SECOND = LOG.insert(K, (2,), 1, v=2)
ROW: Values = {"v": 1, "w": "a"}


@pytest.mark.parametrize(
    ("known", "changes", "expected", "why"),
    [
        ([], [LOG.insert(K, (1,), 1)], [("c", 1, None, {}, ())], "a row without anything but its key"),
        ([FIRST], [LOG.update(K, (1,), 2, v=1)], [("u", 1, ROW, ROW, ())], "written once more"),
        (
            [SECOND, FIRST, LOG.update(K, (2,), 9, w="new"), LOG.static(K, 1, s=4)],
            [LOG.delete_partition(K, 5)],
            [
                ("d", None, {"s": 4}, None, ("s",)),
                ("d", 1, ROW, None, ("v", "w")),
                ("u", 2, {"v": 2, "w": "new"}, {"w": "new"}, ("v",)),
            ],
            "a partition: static row first, what is newer stays",
        ),
    ],
)
def test_what_changes_do(known: list[Change], changes: list[Change], expected: list[object], why: str) -> None:
    assert told(*changes, known=known) == expected, why


def shown(partition: Partition, at: int) -> Rows:
    """The visible rows of a partition, asked for one by one."""
    found: Rows = {}
    for place, known in partition.rows.items():
        columns = VisibleColumns(OF_ANY_BYTES, static=place is None)
        values = columns.of(known.state, partition.covering(place), at)
        if values is not None:
            found[None if place is None else known.clustering] = values
    return found


OPS = {(True, False): ImageOp.CREATE, (False, False): ImageOp.UPDATE, (False, True): ImageOp.DELETE}
"""By whether nothing was there before, and whether nothing is afterwards."""


def follow(rows: Rows, images: list[Image]) -> None:
    """Do to rows what images say; each begins where the last one of its row ended."""
    for image in images:
        assert rows.pop(image.clustering, None) == image.before
        assert image.op is OPS[image.before is None, image.after is None]
        if image.after is not None:
            rows[image.clustering] = image.after
        for column in ("v", "l", "w", "s", "sl"):
            differs = (image.before or {}).get(column) != (image.after or {}).get(column)
            assert differs == (column in image.changed)


@pytest.mark.slow
@settings(max_examples=examples(20))
@given(updates, st.lists(st.integers(8, 12), min_size=6, max_size=6), hidings)
def test_images_in_a_row_end_in_what_is_visible(
    history: list[list[Change]], clock: list[int], truncations: list[Deletion | None]
) -> None:
    images, partition, rows = Images(OF_ANY_BYTES), Partition(), Rows()
    now = 0
    for update, at, truncation in zip(history, sorted(clock), truncations, strict=False):
        follow(rows, images.expire(partition, now, at))
        if truncation is not None:
            follow(rows, images.truncate(partition, truncation, now=at))
            partition.erase(truncation)
        now = at
        assert rows == shown(partition, now)
        follow(rows, images.apply(partition, update, now=now))
        assert rows == shown(partition, now)
        assert images.apply(partition, update, now=now) == []
        assert images.expire(partition, now, now) == []


def test_what_a_log_tells_of_one_change() -> None:
    """A row that is covered by what is there has an image; of many rows only those that read otherwise have one."""
    images, partition = Images(WIDE), Partition()
    changes = [
        LOG.insert(K, (1,), 5, v=1),
        LOG.update(K, (1,), 9, v=1),  # the cell outlives what comes
        LOG.insert(K, (2,), 5, v=2),
        LOG.update(K, (2,), 4, v=7),
        LOG.delete(K, (3,), 9),
        LOG.delete_partition(K, 6),
        LOG.insert(K, (2,), 6, v=8),
    ]
    found = [[(one.op.value, one.before, one.after) for one in images.of_change(partition, one)] for one in changes]
    assert found == [
        [("c", None, {"v": 1})],
        [("u", {"v": 1}, {"v": 1})],
        [("c", None, {"v": 2})],
        [("u", {"v": 2}, {"v": 2})],
        [],
        [("d", {"v": 2}, None)],
        [],
    ]


@pytest.mark.parametrize("of", ["double", "frozen<list<double>>", "frozen<tuple<int, double>>"])
def test_a_float_differs_by_its_bits(of: str) -> None:
    """-0.0 is equal to 0.0, and no NaN to itself: one is another value to a reader, and the other the same."""
    floats = table({"p": "int"}, regular={"v": of})

    def changed(before: str, after: str) -> bool:
        images, partition = Images(floats), Partition()
        for at, bits in ((1, before), (2, after)):
            number: object = struct.unpack(">d", bytes.fromhex(bits))[0]
            value = {"double": number, "frozen<list<double>>": [number]}.get(of, {"f0": 1, "f1": number})
            last = images.apply(partition, [Log(floats).insert((1,), (), at, v=value)])
        return last[0].changed == ("v",)

    zero, minus_zero, nan, other_nan = "0000000000000000", "8000000000000000", "7ff8000000000000", "7ff8000000000001"
    assert changed(zero, minus_zero)
    assert changed(nan, other_nan)
    assert not changed(minus_zero, minus_zero)
    assert not changed(nan, nan)
