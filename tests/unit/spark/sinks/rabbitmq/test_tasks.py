"""Tasks of the RabbitMQ sink: two attempts at once, a broker that dies within one, secrets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from tailrace_schemas.errors import ServiceError
from tailrace_spark.batch.delivery import MicroBatch, Piece, Summary
from tailrace_spark.sinks.changelog.sink import LogWriter
from tailrace_spark.sinks.rabbitmq.outlet import RabbitmqOpener
from tailrace_spark.sinks.rabbitmq.settings import RabbitmqSinkSettings
from tests import rabbitmq
from tests.unit.spark.sinks.change_log_contract import PARTITION, in_turn, once, place_of, require_order
from tests.unit.spark.sinks.in_tasks import attempt, interrupted
from tests.unit.spark.sinks.rabbitmq.published import Published

with_broker = pytest.mark.skipif(rabbitmq.missing() is not None, reason=str(rabbitmq.missing()))
_workers = count()


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
    with interrupted(task_of(store.settings), PARTITION, in_turn(0, 12), then=in_turn(12, 24)) as end:
        repeated = attempt(task_of(store.settings), PARTITION, [in_turn(0, 24)])
        assert end().summary == Summary(24, 24)
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
        yield in_turn(0, 60)
        store.server.kill()
        yield in_turn(60, 120)

    with pytest.raises(ServiceError, match="exchange e"):
        task.write(PARTITION, pieces())
    store.server.start()
    assert task.write(PARTITION, [in_turn(0, 120)]).summary == Summary(120, 120)
    queues = store.by_queue()
    for queue in queues:
        require_order(queue)
    assert offsets(store) == list(range(120))
