"""Writers of images that have a successor under their name: one that was stopped, one that comes back later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import count

import pytest
import sqlalchemy as sa

from tailrace_schemas.errors import FencedError
from tailrace_spark.batch.delivery import MicroBatch, Piece
from tailrace_spark.sinks.images.planning import ImageSettings
from tailrace_spark.sinks.images.store import ImageStore
from tests.support.shop import PLAIN
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import Database, piece
from tests.unit.spark.sinks.stopped import stopped_before

LOG = Log(PLAIN)
WRITES = r'INSERT INTO ["`]?tailrace_images__state'
PARTITION = ("t.ks.t", 0)
NAME = "t.sink.orders-17"
_workers = count()
Writing = Callable[[ImageStore, str, Piece], Callable[[], object]]


@pytest.fixture
def stores(database: Database) -> Iterator[tuple[ImageStore, ImageStore]]:
    """Of two processes."""
    with closing(ImageStore(database.url, NAME)) as first, closing(ImageStore(database.url, NAME)) as second:
        yield first, second


def by_driver(store: ImageStore, url: str, some: Piece) -> Callable[[], object]:
    del url
    return lambda: list(store.imaged([some]))


def by_task(store: ImageStore, url: str, some: Piece) -> Callable[[], object]:
    """In another worker process, with another checkpoint."""
    settings, name = ImageSettings(url, NAME, 0.0, None), f"fenced {next(_workers)}"
    task = settings.plan(store, MicroBatch(name, 0, {PARTITION: 1 << 40}), lambda: [(-1, PLAIN)])
    own = sa.make_url(url).update_query_dict({"application_name": name})
    worker = replace(task, settings=replace(settings, url=own.render_as_string(hide_password=False)))
    return lambda: list(worker.imaged(PARTITION, [some]))


@pytest.mark.promise("sink.successor")
@pytest.mark.parametrize("writing", [by_driver, by_task], ids=["driver", "task"])
def test_a_writer_that_was_stopped_before_it_writes_leaves_its_successors_state(
    database: Database, stores: tuple[ImageStore, ImageStore], writing: Writing
) -> None:
    if database.dialect == "sqlite" or (writing is by_task and not stores[0].by_tasks):
        pytest.skip("SQLite has one writer at a time; tasks make images in PostgreSQL")
    first, second = stores
    stale, new = piece([LOG.update((1,), (), 2, w=1)]), piece([LOG.update((1,), (), 3, v="new")])
    # Behind both, so that there are no images of before for them to forget: they would wait for each other there.
    list(first.imaged([piece([LOG.insert((1,), (), 1, v="old", w=0)])]))
    with stopped_before(WRITES, writing(first, database.url, stale)) as go_on:
        writing(second, database.url, new)()
        with pytest.raises(FencedError, match=f"another process writes {NAME}"):
            go_on()
    [images] = second.imaged([piece([LOG.update((1,), (), 4, w=4)])])
    assert images.changes[0].images is not None
    assert [image.before for image in images.changes[0].images.images or ()] == [{"v": "new", "w": 0}]


@pytest.mark.promise("sink.successor")
def test_a_writer_with_a_successor_changes_nothing_any_more(database: Database) -> None:
    change, later = piece([LOG.insert((1,), (), 1, v="a")]), piece([LOG.update((1,), (), 2, w=1)])
    with (
        closing(ImageStore(database.url, NAME, merge_horizon=0)) as first,
        closing(ImageStore(database.url, NAME)) as second,
    ):
        list(first.imaged([change]))
        list(second.imaged([change]))
        before = database.everything()
        attempts: list[Callable[[], object]] = [
            lambda: list(first.imaged([later])),
            first.purge,
            lambda: first.prepare([]),
        ]
        for attempt in (*attempts, *attempts):
            with pytest.raises(FencedError):
                attempt()
        assert database.everything() == before
