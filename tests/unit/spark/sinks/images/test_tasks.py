"""Images that tasks make: those of the driver, of two attempts and late ones, of what expires, after a newer plan."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import count
from random import Random
from uuid import UUID

import pytest
import sqlalchemy as sa

from tailrace_schemas.change import Cell, Change, Marker
from tailrace_schemas.errors import FencedError
from tailrace_schemas.masks import Masks, Rule
from tailrace_schemas.table import Table
from tailrace_schemas.tokens import partition as partition_of
from tailrace_schemas.tokens import token as token_of
from tailrace_spark.batch.delivery import Delivered, MicroBatch, Piece, RecordId
from tailrace_spark.batch.row_image import Imaged
from tailrace_spark.shaping.conditions import split_conditions
from tailrace_spark.sinks.images.planning import ImageSettings, ShareImages
from tailrace_spark.sinks.images.store import ImageStore
from tailrace_spark.sinks.protocol import HereOnlyError
from tailrace_spark.sinks.state_store.fences import Fence
from tests.postgres import new_database
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

pytestmark = pytest.mark.slow

CART = table(
    {"customer": "int"}, {"line": "int"}, {"note": "text"}, {"amount": "int", "tags": "set<text>"},
    keyspace="shop", name="cart", table_id=UUID(int=3),
)  # fmt: skip
LOG = Log(CART)
TOPIC = "t.shop.cart"
PARTITIONS = 3
STREAM = "0d4f8c0f5e0b4dd0a7d4f3f0a1b2c3d4"
SECONDS = 60
Place = tuple[str, int, int]
LOG_KEYS = {LOG.insert((key,), (1,), 1).key: key for key in range(12)}
_workers = count()


class Topic:
    """The places of changes: each key has its partition, offsets ascend."""

    def __init__(self) -> None:
        self._next = [0] * PARTITIONS

    def delivered(self, changes: Iterable[Change]) -> list[Delivered]:
        """By partition and offset."""
        placed = [Delivered(self._place(change), change) for change in changes]
        return sorted(placed, key=lambda delivered: delivered.record_id.key)

    def _place(self, change: Change) -> RecordId:
        number = partition_of(token_of(change.key or b""), PARTITIONS)
        self._next[number] += 1
        return RecordId(TOPIC, number, self._next[number] - 1, b"12345678")


class Planned:
    """A stream's images in a database of its own, as the driver plans them and tasks of new workers make them."""

    def __init__(self, url: str) -> None:
        self.made_of = ImageSettings(url, "images", 0.0, None)
        self.store = self.made_of.open()
        self.time = 1.0

    def plan(self, number: int = 0, *definitions: tuple[int, Table]) -> ShareImages:
        batch = MicroBatch(STREAM, number, {(TOPIC, partition): 1 << 40 for partition in range(PARTITIONS)})
        return self.made_of.plan(self.store, batch, lambda: definitions or [(-1, CART)], lambda: self.time)

    def close(self) -> None:
        self.store.close()


@pytest.fixture
def planned() -> Iterator[Planned]:
    with closing(Planned(new_database())) as images:
        yield images


def in_worker(task: ShareImages) -> ShareImages:
    """A copy with connections and a memory of its own, as another worker process has it."""
    copied: ShareImages = pickle.loads(pickle.dumps(task))  # noqa: S301 - our own
    url = sa.make_url(copied.settings.url).update_query_dict({"application_name": f"worker {next(_workers)}"})
    own = replace(copied.settings, url=url.render_as_string(hide_password=False))
    return replace(copied, settings=own)


def by_tasks(task: ShareImages, changes: Sequence[Delivered], size: int = 2) -> dict[Place, Imaged | None]:
    """The images of a batch, a task for each partition, all at once."""
    shares = [
        [delivered for delivered in changes if delivered.record_id.partition == number] for number in range(PARTITIONS)
    ]
    with ThreadPoolExecutor(PARTITIONS) as pool:
        runs = [
            pool.submit(taken, in_worker(task).imaged((TOPIC, number), cut(share, size)))
            for number, share in enumerate(shares)
        ]
    return {place: images for run in runs for place, images in run.result().items()}


def cut(changes: Sequence[Delivered], size: int) -> Iterator[Piece]:
    for begin in range(0, len(changes), size):
        yield Piece(tuple(changes[begin : begin + size]))


def taken(pieces: Iterable[Piece]) -> dict[Place, Imaged | None]:
    return {delivered.record_id.key: delivered.images for piece in pieces for delivered in piece.changes}


def shown(images: dict[Place, Imaged | None]) -> dict[Place, object]:
    """Without the tables, which are equal in other objects."""
    return {place: None if of is None else of.value() for place, of in images.items()}


def program(seed: int, size: int = 120) -> list[Change]:
    """Changes of some twenty partitions, at times in no order."""
    random = Random(seed)
    return [one_change(random) for _ in range(size)]


def one_change(random: Random) -> Change:
    key, line, at = (random.randrange(20),), (random.randrange(3),), random.randrange(1, 60)
    match random.randrange(7):
        case 0:
            return LOG.insert(key, line, at, amount=at)
        case 1:
            return LOG.delete(key, line, at)
        case 2:
            return LOG.delete_partition(key, at)
        case 3:
            return LOG.static(key, at, note=f"n{at}")
        case 4:
            return LOG.delete_range(key, (0,), (1,), at)
        case 5:
            return LOG.update(key, line, at, tags={f"t{at}": ""})
        case _:
            return LOG.update(key, line, at, amount=at)


@pytest.mark.promise("stream.execution")
@pytest.mark.parametrize("turns", [False, True], ids=["tasks alone", "in turn with the driver"])
@pytest.mark.parametrize("seed", [11, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 4))])
def test_tasks_make_the_images_that_the_driver_makes(planned: Planned, seed: int, *, turns: bool) -> None:
    """Batch by batch, and of the last one again."""
    topic, changes = Topic(), program(seed)
    batches = [topic.delivered(changes[begin : begin + 30]) for begin in range(0, len(changes), 30)]
    with closing(ImageStore(planned.made_of.url, "driver")) as driver:
        expected = [shown(taken(driver.imaged(cut(batch, 7)))) for batch in batches]
    made: list[dict[Place, object]] = []
    for number, batch in enumerate(batches):
        if turns and number % 2:
            planned.store.prepare(())
            made.append(shown(taken(planned.store.imaged(cut(batch, 5)))))
        else:
            made.append(shown(by_tasks(planned.plan(number), batch)))
    assert made == expected
    assert shown(by_tasks(planned.plan(9), batches[-1], size=50)) == expected[-1]
    assert sum(bool(images) for images in made[-1].values()) > 10


@pytest.mark.promise("tasks.attempts")
def test_of_two_attempts_at_once_both_have_the_same_images(planned: Planned) -> None:
    changes = [one for one in Topic().delivered(program(3)) if one.record_id.partition == 0]
    middle = len(changes) // 2
    task = planned.plan()
    paused, resumed = threading.Event(), threading.Event()

    def pieces() -> Iterator[Piece]:
        yield Piece(tuple(changes[:middle]))
        paused.set()
        assert resumed.wait(SECONDS)
        yield Piece(tuple(changes[middle:]))

    with ThreadPoolExecutor(1) as pool:
        zombie = pool.submit(taken, in_worker(task).imaged((TOPIC, 0), pieces()))
        assert paused.wait(SECONDS)
        repeated = taken(in_worker(task).imaged((TOPIC, 0), cut(changes, 5)))
        resumed.set()
        assert shown(zombie.result(SECONDS)) == shown(repeated)
    with closing(ImageStore(planned.made_of.url, "driver")) as driver:
        assert shown(repeated) == shown(taken(driver.imaged(cut(changes, 5))))


@pytest.mark.promise("tasks.fence")
def test_tasks_of_an_earlier_plan_make_no_more_images(planned: Planned) -> None:
    """Of a newer plan, and of a batch that the driver writes."""
    topic = Topic()
    first, second = topic.delivered(program(3, 20)), topic.delivered(program(4, 20))
    task = planned.plan()
    by_tasks(task, first)
    by_tasks(planned.plan(1), second)
    later = [one for one in topic.delivered(program(5, 20)) if one.record_id.partition == 0]
    with pytest.raises(FencedError, match="another process writes images"):
        list(in_worker(task).imaged((TOPIC, 0), cut(later, 3)))
    task = planned.plan(2)
    planned.store.prepare(())
    with pytest.raises(FencedError, match="another process writes images"):
        list(in_worker(task).imaged((TOPIC, 0), cut(later, 3)))


@pytest.mark.promise("tasks.one-driver", "subscription.shared-reading")
def test_images_go_on_with_another_checkpoint(planned: Planned) -> None:
    """They are their name's, whatever stream a batch is of."""
    planned.plan()
    planned.store.prepare(())
    with closing(planned.made_of.open()) as second:
        second.prepare(())
        with pytest.raises(FencedError, match="another process writes images"):
            planned.store.prepare(())


def expiring(key: int, at: int) -> Change:
    """A row whose marker and cell are gone a second after they were written; `at` in seconds."""
    [cell] = LOG.update((key,), (1,), 1, amount=key).cells
    gone = Cell(cell.column, None, cell.written, 1, at + 1, cell.value)
    return replace(LOG.insert((key,), (1,), 1), marker=Marker(1, 1, at + 1), cells=(gone,))


def customers(images: dict[Place, Imaged | None]) -> set[tuple[int, object]]:
    """(Kafka partition, customer) of the rows that a batch tells to have expired."""
    return {(place[1], image.key["customer"]) for place, of in images.items() if of for image in of.expired or ()}


@pytest.mark.promise("stream.execution")
def test_the_task_of_its_key_tells_what_expired(planned: Planned) -> None:
    """Once, with the partition's next change: another partition's has no order with it."""
    topic = Topic()
    planned.time = 1_000
    expired = topic.delivered(expiring(key, 1_000) for key in range(12))
    assert not customers(by_tasks(planned.plan(), expired))
    homes = {(delivered.record_id.partition, LOG_KEYS[delivered.change.key]) for delivered in expired}
    assert {number for number, _ in homes} == set(range(PARTITIONS))
    planned.time = 1_002
    others = topic.delivered(LOG.update((key,), (2,), 9, amount=1) for key in range(100, 120))
    first = customers(by_tasks(planned.plan(1), [one for one in others if one.record_id.partition < 2]))
    assert first == {home for home in homes if home[0] < 2}
    later = topic.delivered(LOG.update((key,), (2,), 9, amount=1) for key in range(200, 220))
    assert customers(by_tasks(planned.plan(2), later)) == homes - first
    assert not customers(by_tasks(planned.plan(3), topic.delivered(program(8, 20))))


def test_a_definition_that_no_plan_has_made_ready_is_the_drivers(planned: Planned) -> None:
    extra = table(
        {"customer": "int"}, {"line": "int"}, {"note": "text"}, {"amount": "int", "tags": "set<text>", "w": "int"},
        keyspace="shop", name="cart", table_id=UUID(int=3),
    )  # fmt: skip
    changes = Topic().delivered([Log(extra).insert((1,), (1,), 5, w=3)])
    number = changes[0].record_id.partition
    with pytest.raises(HereOnlyError, match=r"shop\.cart: a definition"):
        list(in_worker(planned.plan()).imaged((TOPIC, number), cut(changes, 1)))
    task = planned.plan(0, (-1, CART), (-1, extra))
    [images] = taken(in_worker(task).imaged((TOPIC, number), cut(changes, 1))).values()
    assert images is not None
    assert [image.after for image in images.images or ()] == [{"w": 3}]


@pytest.mark.promise("stream.execution")
def test_rows_of_hashed_keys_are_the_drivers(planned: Planned) -> None:
    """Their place in Kafka is that of the key as it was written: no task tells by the hash which rows are its own."""
    masks = Masks([Rule.parse("shop.cart.customer", "hash")], b"key")
    expired = hashed(masks, Topic().delivered(expiring(key, 1_000) for key in range(12)))
    with pytest.raises(HereOnlyError, match="a mask hashes the keys"):
        by_tasks(planned.plan(0, (-1, masks.table(CART))), expired)
    planned.time = 1_000
    assert len(taken(planned.store.imaged([Piece(tuple(expired))]))) == 12
    with pytest.raises(HereOnlyError, match="a mask hashes the keys"):
        planned.plan(1, (-1, masks.table(CART)))
    planned.store.prepare(())


def hashed(masks: Masks, changes: Sequence[Delivered]) -> list[Delivered]:
    return [replace(one, change=change) for one in changes if (change := masks.change(one.change)) is not None]


def test_a_task_shows_no_secret() -> None:
    made_of = ImageSettings("postgresql+psycopg://u:sesame@127.0.0.1:1/d", "images", 0.0, None)
    task = ShareImages(made_of, MicroBatch(STREAM, 0, {}), Fence("images", 1), 1.0)
    assert "sesame" not in repr(task) + str(task)


@pytest.mark.promise("shaping.row-filter")
def test_tasks_filter_rows_as_the_driver_does(planned: Planned) -> None:
    filters, _ = split_conditions({"shop.*": "row.amount > 20"}, "stream.where")
    plain = replace(CART, static=())  # rows of a table with static columns cannot be filtered
    log, changes = Log(plain), list[Change]()
    for number in range(60):
        key, line = (number % 12,), (number % 3,)
        changes.append(log.insert(key, line, number, amount=number) if number % 4 else log.delete(key, line, number))
    delivered = Topic().delivered(changes)
    with closing(ImageStore(new_database(), "driver", clock=lambda: 1.0)) as driver:
        driver.filter_rows(filters)
        by_driver = taken(driver.imaged(cut(delivered, 7)))
    planned.store.filter_rows(filters)
    by_partition = by_tasks(planned.plan(0, (-1, plain)), delivered)
    assert shown(by_partition) == shown(by_driver)
    assert 0 < len(by_driver) < len(delivered)
    # Another attempt at the same batch, after a newer plan, gives the same.
    assert shown(by_tasks(planned.plan(0, (-1, plain)), delivered)) == shown(by_driver)
