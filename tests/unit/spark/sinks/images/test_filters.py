"""Images of rows that match a filter: those of all rows, filtered in Python; who follows them has SELECT's rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from io import StringIO
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace_common.settings import Settings
from tailrace_schemas.change import Change
from tailrace_schemas.errors import SettingsError
from tailrace_spark.batch.delivery import Delivered, Piece, RecordId
from tailrace_spark.batch.row_image import Imaged, RowImage
from tailrace_spark.rowstate.visible import ImageOp
from tailrace_spark.shaping.conditions import split_conditions
from tailrace_spark.shaping.shape import shape_of
from tailrace_spark.sinks.changelog.sink import ChangeLogSink
from tailrace_spark.sinks.console.outlet import ConsoleOutlet
from tailrace_spark.sinks.console.settings import ConsoleSinkSettings
from tailrace_spark.sinks.images.store import ImageStore
from tailrace_spark.sinks.protocol import AGAIN, write_here
from tailrace_spark.sinks.registry import open_sink
from tests.properties import examples
from tests.support.expiry import Time
from tests.support.letters import MemoryLetters
from tests.unit.spark.cassandra import Log, truncate
from tests.unit.spark.sinks.merging_contract import Row, selected
from tests.unit.spark.sinks.row_filter_contract import COLUMNS, CONDITIONS, LOG, SALES, Matches, one_change

TOPIC: Final = "t.shop.sales"
VALUES: Final = [column.name for column in SALES.regular]
_databases = count()


class Images:
    """The images of one stream in a database of its own; each batch in a process of its own."""

    def __init__(self, folder: Path, where: str | None) -> None:
        self._url = f"sqlite:///{folder / f'images{next(_databases)}.db'}"
        self._filters = split_conditions({"shop.*": where}, "stream.where")[0] if where else ()

    def of(self, batch: Sequence[Delivered], time: int = 100) -> dict[int, Imaged]:
        """The images by offset; changes that are left out have none. In two pieces."""
        with closing(ImageStore(self._url, clock=Time(time))) as store:
            store.filter_rows(self._filters)
            return dict(_taken(store.imaged(_halves(batch))))


def _halves(batch: Sequence[Delivered]) -> Iterator[Piece]:
    half = len(batch) // 2
    yield from (Piece(tuple(part)) for part in (batch[:half], batch[half:]) if part)


def _taken(pieces: Iterable[Piece]) -> Iterator[tuple[int, Imaged]]:
    for piece in pieces:
        assert not piece.dead_letters
        for delivered in piece.changes:
            assert delivered.images is not None
            yield delivered.record_id.offset, delivered.images


def placed(changes: Sequence[Change], first: int = 0) -> list[Delivered]:
    """The changes at consecutive offsets."""
    return [
        Delivered(RecordId(TOPIC, 0, offset, b"12345678"), change) for offset, change in enumerate(changes, start=first)
    ]


def asked_for(images: Iterable[RowImage], matches: Matches) -> tuple[RowImage, ...]:
    """Those of a table that has the rows which match, and no others."""
    shown_images = []
    for image in images:
        before = image.before if _matches(image.before, matches) else None
        after = image.after if _matches(image.after, matches) else None
        if before is None and after is None:
            continue
        op = ImageOp.CREATE if before is None else ImageOp.DELETE if after is None else ImageOp.UPDATE
        named = image.changed if op is ImageOp.UPDATE else [name for name in VALUES if name in (before or after or ())]
        shown_images.append(replace(image, op=op, before=before, after=after, changed=tuple(named)))
    return tuple(shown_images)


def _matches(values: Any, matches: Matches) -> bool:
    return values is not None and matches(values.get("total"), values.get("name"))


def values_of(imaged: dict[int, Imaged]) -> dict[int, object]:
    """Without the tables, which are equal in other objects."""
    return {offset: of.value() for offset, of in imaged.items()}


def expected(all_images: dict[int, Imaged], matches: Matches) -> dict[int, object]:
    values_by_offset: dict[int, object] = {}
    for offset, of in all_images.items():
        images = None if of.images is None else asked_for(of.images, matches)
        expired = asked_for(of.expired or (), matches)
        if images is None or images or expired:
            values_by_offset[offset] = Imaged(of.table, images, expired).value()
    return values_by_offset


@pytest.mark.slow
@pytest.mark.promise("shaping.row-filter")
@pytest.mark.parametrize(("where", "matches"), CONDITIONS.items(), ids=CONDITIONS)
@given(batches=st.lists(st.lists(one_change, min_size=1, max_size=6), min_size=1, max_size=4))
@settings(max_examples=examples(4), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_images_are_those_of_all_rows_filtered_by_what_the_rows_show(
    tmp_path: Path, where: str, matches: Matches, batches: list[list[Change]]
) -> None:
    everything, filtered = Images(tmp_path, None), Images(tmp_path, where)
    followed: dict[tuple[Any, ...], Row] = {}
    offset, arrived = 0, list[Change]()
    for number, changes in enumerate([*batches, [LOG.insert(("end",), (9,), 9, name="z")]]):
        batch, time = placed(changes, offset), 100 * (number + 1)
        offset += len(batch)
        arrived += changes
        of_all, images = everything.of(batch, time), filtered.of(batch, time)
        assert values_of(images) == expected(of_all, matches)
        assert values_of(filtered.of(batch, time + 1000)) == values_of(images)  # it came again
        _follow(followed, images)
    now = 100 * (len(batches) + 1)
    rows = [
        row
        for row in selected(SALES, arrived, *COLUMNS, now=now)
        if _matches(dict(zip(COLUMNS, row, strict=True)), matches)
    ]
    assert sorted(followed.values(), key=repr) == rows


def _follow(rows: dict[tuple[Any, ...], Row], imaged: dict[int, Imaged]) -> None:
    """What a reader does: it has each row as its last image shows it."""
    for _, of in sorted(imaged.items()):
        assert of.images is not None
        assert of.expired is not None
        for image in (*of.expired, *of.images):
            key = tuple(image.key.values())
            assert (image.before is not None) == (key in rows)
            rows.pop(key, None)
            if image.after is not None:
                rows[key] = (*key, image.after.get("total"), image.after.get("name"))


@pytest.mark.promise("shaping.row-filter")
def test_a_row_comes_when_it_matches_and_goes_when_not(tmp_path: Path) -> None:
    images = Images(tmp_path, "row.total > 1")
    changes = [
        LOG.insert(("k",), (1,), 1, total=1, name="a"),
        LOG.update(("k",), (1,), 2, total=2),
        LOG.update(("k",), (1,), 3, total=0),
        LOG.update(("k",), (1,), 4, name="b"),
    ]
    imaged = images.of(placed(changes))
    assert {offset: of.value()["images"] for offset, of in imaged.items()} == {
        1: [
            {
                "op": "c",
                "key": {"k": "k", "c": 1},
                "before": None,
                "after": {"name": "a", "total": 2},
                "changed": ["name", "total"],
            }
        ],
        2: [
            {
                "op": "d",
                "key": {"k": "k", "c": 1},
                "before": {"name": "a", "total": 2},
                "after": None,
                "changed": ["name", "total"],
            }
        ],
    }


@pytest.mark.promise("shaping.row-filter")
def test_a_truncation_passes_with_the_rows_that_match(tmp_path: Path) -> None:
    images = Images(tmp_path, "row.total > 1")
    changes = [LOG.insert(("k",), (1,), 1, total=1), LOG.insert(("k",), (2,), 1, total=2)]
    assert list(images.of(placed(changes))) == [1]
    imaged = images.of(placed([truncate(SALES, "h", 5)], 2))
    assert [[image.before for image in of.images or ()] for of in imaged.values()] == [[{"total": 2}]]


def test_a_table_that_does_not_fit_the_filter_is_set_aside(tmp_path: Path) -> None:
    with closing(ImageStore(f"sqlite:///{tmp_path / 'images.db'}")) as store:
        store.filter_rows(split_conditions({"shop.*": "row.price > 1"}, "stream.where")[0])
        [piece] = store.imaged([Piece(tuple(placed([LOG.insert(("k",), (1,), 1, total=1)])))])
    [letter] = piece.dead_letters
    assert (piece.changes, "no column row.price; it may ask for row.name, row.total" in letter.reason) == ((), True)


@pytest.mark.promise("shaping.row-filter")
def test_a_replay_shows_nobody_rows_that_may_not_match(tmp_path: Path) -> None:
    """It knows no rows. A truncation has none, and other tables are not filtered."""
    out, letters = StringIO(), MemoryLetters()
    store = ImageStore(f"sqlite:///{tmp_path / 'images.db'}")
    with closing(ChangeLogSink(ConsoleOutlet(out, letters, tables=False), store)) as sink:
        sink.filter_rows(split_conditions({"shop.*": "row.total > 1"}, "stream.where")[0])
        other = replace(SALES, keyspace="elsewhere")
        changes = [LOG.insert(("k",), (1,), 1, total=1), truncate(SALES, "h", 5), Log(other).insert(("k",), (1,), 1)]
        assert write_here(sink, [Piece(tuple(placed(changes)))], AGAIN).dead_letters == 1
    [letter] = letters.all
    assert (letter.record_id.offset, "rows of its table are filtered" in letter.reason) == (0, True)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["offset"] for line in lines if "reason" not in line] == [1, 2]


def test_a_change_log_with_images_can_be_asked_for_rows_and_one_without_cannot(tmp_path: Path) -> None:
    where = Settings.model_validate({"stream": {"where": {"shop.*": "row.total > 1"}}}).stream
    section = {"format": "json", "images": f"sqlite:///{tmp_path / 'images.db'}"}
    with closing(open_sink("out", ConsoleSinkSettings.model_validate(section), prefix="t")) as sink:
        assert shape_of(where, sink) is not None
    with (
        closing(open_sink("out", ConsoleSinkSettings.model_validate({"format": "json"}), prefix="t")) as sink,
        pytest.raises(SettingsError, match="this sink knows only what a change writes"),
    ):
        shape_of(where, sink)
