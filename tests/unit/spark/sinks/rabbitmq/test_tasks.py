"""Tasks of the RabbitMQ sink: two attempts at once, a broker that dies within one, secrets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from tailrace_schemas.errors import ServiceError
from tailrace_spark.batch.delivery import Delivered, Piece, RecordId, Summary
from tailrace_spark.batch.micro_batch import MicroBatch
from tailrace_spark.sinks.changelog.shares import LogWriter
from tailrace_spark.sinks.protocol import HereOnlyError
from tailrace_spark.sinks.rabbitmq.outlet import RabbitmqOpener
from tailrace_spark.sinks.rabbitmq.settings import RabbitmqSinkSettings
from tailrace_spark.sinks.registry import open_sink
from tests import rabbitmq
from tests.unit.spark.sinks.change_log_contract import STREAM, once, place_of, require_order
from tests.unit.spark.sinks.in_tasks import attempt, interrupted
from tests.unit.spark.sinks.rabbitmq.published import LOG, Published, truncation

PARTITION = ("t.shop.plain", 0)
KEYS = 3
with_broker = pytest.mark.skipif(rabbitmq.missing() is not None, reason=str(rabbitmq.missing()))
_workers = count()


def records(begin: int, end: int) -> Piece:
    """Changes at the offsets from `begin` to before `end`, of some keys in turn."""
    return Piece(
        tuple(
            Delivered(
                RecordId(*PARTITION, at, bytes(8)), LOG.update((at % KEYS,), (), at, w=at), STREAM, message=b"\0message"
            )
            for at in range(begin, end)
        )
    )


def task_of(settings: RabbitmqSinkSettings, number: int = 0) -> LogWriter:
    """The task of a batch in a worker process of its own."""
    opener = RabbitmqOpener(f"worker {next(_workers)}", settings)
    return LogWriter(opener, MicroBatch("s", number, {PARTITION: 1 << 40}))


def offsets(store: Published) -> list[int]:
    """Of the records that readers keep, in order."""
    return sorted(place_of(record)[2] for record in once(store.records()))


@with_broker
@pytest.mark.long
@pytest.mark.promise("tasks.attempts")
def test_of_two_attempts_at_once_the_first_copies_are_in_order(published: Callable[..., Published]) -> None:
    """In the middle of one attempt another begins; they end in turn."""
    store = published(queues=2)
    with interrupted(task_of(store.settings), PARTITION, records(0, 12), then=records(12, 24)) as end:
        repeated = attempt(task_of(store.settings), PARTITION, [records(0, 24)])
        assert end().summary == Summary(24, 24)
    assert repeated is not None
    assert repeated.summary == Summary(24, 24)
    for queue in store.by_queue():
        require_order(queue)
    assert offsets(store) == list(range(24))


@with_broker
@pytest.mark.long
@pytest.mark.promise("rabbitmq.confirmed")
def test_a_broker_that_dies_within_a_task_loses_nothing(published: Callable[..., Published]) -> None:
    """The worker's next attempt goes on with what was not confirmed."""
    store = published(queues=3, queue_type="classic")
    task = task_of(store.settings)

    def pieces() -> Iterator[Piece]:
        yield records(0, 60)
        store.server.kill()
        yield records(60, 120)

    with pytest.raises(ServiceError, match="exchange e"):
        task.write(PARTITION, pieces())
    store.server.start()
    assert task.write(PARTITION, [records(0, 120)]).summary == Summary(120, 120)
    queues = store.by_queue()
    for queue in queues:
        require_order(queue)
    assert offsets(store) == list(range(120))


@with_broker
@pytest.mark.long
@pytest.mark.promise("tasks.truncations-of-logs")
def test_a_truncation_is_the_drivers(published: Callable[..., Published]) -> None:
    """What is behind it waits for it."""
    store = published(queues=1)
    place = RecordId(*PARTITION, 4, bytes(8))
    behind = Piece((Delivered(place, truncation(), STREAM),))
    with pytest.raises(HereOnlyError, match=r"truncation of shop\.plain"):
        attempt(task_of(store.settings), PARTITION, [records(0, 4), behind, records(5, 20)])
    assert {*offsets(store)} <= {0, 1, 2, 3}


def test_a_task_shows_no_secret() -> None:
    settings = RabbitmqSinkSettings.model_validate({"url": "amqp://127.0.0.1:1", "password": "sesame"})
    with closing(open_sink("there", settings, "t")) as sink:
        task = sink.batch_write(MicroBatch("s", 0, {})).writer([])
    assert "sesame" not in repr(task) + str(task)


def test_changes_with_images_are_the_drivers(tmp_path: Path) -> None:
    settings = RabbitmqSinkSettings.model_validate(
        {"url": "amqp://127.0.0.1:1", "images": f"sqlite:///{tmp_path / 'images.db'}"}
    )
    with closing(open_sink("there", settings, "t")) as sink:
        assert not sink.capabilities.executors
