"""The RabbitMQ sink against a real RabbitMQ: the contract of change logs, and everything that goes wrong with one."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tailrace_schemas.errors import ServiceError
from tailrace_spark.batch.delivery import Piece, Summary
from tailrace_spark.sinks.changelog.sink import ChangeLogSink
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.registry import open_sink
from tests import rabbitmq
from tests.support.waiting import until
from tests.unit.spark.sinks.change_log_contract import (
    PLAIN,
    ChangeLogContract,
    Topic,
    changes_of,
    delivered_by,
    once,
    require_order,
)
from tests.unit.spark.sinks.pages import example, write_by_page
from tests.unit.spark.sinks.rabbitmq.published import LOG, Published, changes, truncation, write

pytestmark = pytest.mark.skipif(rabbitmq.missing() is not None, reason=str(rabbitmq.missing()))


@pytest.mark.long
class TestRabbitmq(ChangeLogContract):
    sink = "rabbitmq"

    @pytest.fixture
    def server(self) -> str:
        return f"RabbitMQ {rabbitmq.server().version}"

    @pytest.fixture(params=["classic, 1 queue", "quorum, 3 queues"])
    def stores(self, published: Callable[..., Published], request: pytest.FixtureRequest) -> Callable[[], Published]:
        kind, number = request.param.split(",")
        return lambda: published(queue_type=kind, queues=int(number.split()[0]))


@pytest.mark.long
class TestRabbitmqByTasks(TestRabbitmq):
    sink = "rabbitmq, in tasks"

    @pytest.fixture
    def stores(self, published: Callable[..., Published]) -> Callable[[], Published]:
        return lambda: published(queue_type="quorum", queues=3, by_tasks=True)


@pytest.mark.promise("rabbitmq.order")
@pytest.mark.long
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_key_is_in_one_queue_and_all_queues_have_keys(published: Callable[..., Published], kind: str) -> None:
    one = published(queues=3, queue_type=kind)
    topic = Topic()
    pieces = [topic.piece(*changes(300, keys=60)) for _ in range(2)]
    for piece in pieces:
        write(one, piece)
    queues = one.by_queue()
    keys = [{record["key"]["id"] for record in queue} for queue in queues]
    assert all(keys)
    assert sum(map(len, keys)) == 60
    for queue in queues:
        require_order(queue)
    assert changes_of(one.records(), PLAIN) == delivered_by(*pieces)


@pytest.mark.promise("rabbitmq.order")
@pytest.mark.long
def test_keys_stay_in_their_queues_when_rabbitmq_restarts(published: Callable[..., Published]) -> None:
    """With queues whose numbers are not in the order of their names."""
    one = published(queues=12, queue_type="classic")
    topic = Topic()
    homes: list[dict[int, int]] = []
    for _ in range(2):
        write(one, topic.piece(*changes(200, keys=200)))
        homes.append({record["key"]["id"]: at for at, queue in enumerate(one.by_queue()) for record in queue})
        one._had.clear()
        one.server.kill()
        one.server.start()
    assert homes[0] == homes[1]


@pytest.mark.promise("rabbitmq.truncation")
@pytest.mark.long
def test_a_truncation_stands_in_every_queue_between_what_was_before_and_after(
    published: Callable[..., Published],
) -> None:
    one = published(queues=4)
    topic = Topic()
    write(one, topic.piece(*changes(60, keys=1), truncation(), *changes(60, keys=1)))
    queues = one.by_queue()
    assert [[record["op"] for record in queue].count("truncate") for queue in queues] == [1, 1, 1, 1]
    [full] = [queue for queue in queues if len(queue) > 1]
    assert [record["op"] == "truncate" for record in full].index(True) == 60
    assert [record["offset"] for record in full] == list(range(121))


@pytest.mark.promise("rabbitmq.confirmed")
@pytest.mark.long
def test_a_broker_that_dies_within_a_batch_loses_nothing(published: Callable[..., Published]) -> None:
    """The same sink goes on when it is back, with what was not confirmed."""
    one = published(queues=3, queue_type="classic")
    topic = Topic()
    before, first, second = (topic.piece(*changes(90, keys=20)) for _ in range(3))

    def pieces() -> Iterator[Piece]:
        yield first
        one.server.kill()
        yield second

    with closing(one.sink()) as sink:
        write_here(sink, [before])
        with pytest.raises(ServiceError, match=r"amqp://127\.0\.0\.1:\d+, exchange e\d+"):
            write_here(sink, pieces())
        with pytest.raises(ServiceError, match=r"\(connection refused\)\. Start RabbitMQ or fix its address\."):
            write_here(sink, [first, second])
        one.server.start()
        assert write_here(sink, [first, second]) == Summary(180, 180, 0)
    records = one.records()
    assert changes_of(once(records), PLAIN) == delivered_by(before, first, second)
    require_order(records)


@pytest.mark.promise("rabbitmq.confirmed")
@pytest.mark.long
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_full_queue_holds_the_batch_and_loses_nothing(published: Callable[..., Published], kind: str) -> None:
    one = published(queues=2, declare=False, queue_type=kind)
    one.own(arguments={"x-max-length": 5, "x-overflow": "reject-publish"})
    piece = Topic().piece(*changes(200, keys=6))
    held, words = 0, set[str]()
    with closing(one.sink()) as sink:
        while True:
            try:
                write_here(sink, [piece])
            except ServiceError as error:
                words.add(str(error).partition("exchange ")[2].partition(": ")[2])
                held += 1
                one.by_queue()  # its consumers come round
            else:
                break
    assert words == {"RabbitMQ refuses a message (nack): a queue is full, or cannot keep it now; the batch is held"}
    assert held > 3
    records = one.records()
    assert changes_of(once(records), PLAIN) == delivered_by(piece)
    require_order(records)
    assert len(records) == 200, "what was confirmed was published again by the same process"


@pytest.mark.promise("rabbitmq.order")
@pytest.mark.long
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_queue_that_is_full_now_and_then_keeps_the_order_of_a_key(
    published: Callable[..., Published], kind: str
) -> None:
    """While consumers make room a message may be refused and the next one taken."""
    one = published(queues=1, declare=False, queue_type=kind)
    one.own(arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    piece = Topic().piece(*changes(400, keys=2))
    had: list[dict[str, Any]] = []
    ended = threading.Event()

    def consume() -> None:
        connection = one.server.connect()
        channel = connection.channel()
        channel.basic_qos(prefetch_count=1)  # else it takes whatever comes at once, and the queue is never full
        for method, _, body in channel.consume(one.settings.queue_names[0], inactivity_timeout=0.01):
            if method is not None:
                had.append(json.loads(body))
                channel.basic_ack(method.delivery_tag)
            elif ended.is_set():
                break
        connection.close()

    consumer = threading.Thread(target=consume)
    consumer.start()
    try:
        with closing(one.sink()) as sink:
            until_written(sink, piece)
    finally:
        ended.set()
        consumer.join()
    assert changes_of(once(had), PLAIN) == delivered_by(piece)
    require_order(had)


def until_written(sink: ChangeLogSink, piece: Piece) -> None:
    """As the stream holds a batch."""

    def is_written() -> bool:
        with suppress(ServiceError):
            write_here(sink, [piece])
            return True
        return False

    until(is_written, "a server that takes the batch", every=0)


@pytest.mark.promise("rabbitmq.unroutable")
@pytest.mark.long
def test_what_no_queue_takes_is_an_error_and_comes_when_one_does(published: Callable[..., Published]) -> None:
    one = published(queues=1, declare=False)
    one.own("fanout", bind=False)
    piece = Topic().piece(*changes(6))
    with closing(one.sink()) as sink:
        with pytest.raises(ServiceError) as raised:
            write_here(sink, [piece])
        name = one.settings.exchange
        assert str(raised.value) == (
            f"{one.settings.url}, exchange {name}: a message is routed to no queue by exchange {name} "
            "(t.shop.plain, partition 0, offset 0): bind queues to it, or set declare = true"
        )
        connection = one.server.connect()
        connection.channel().queue_bind(one.settings.queue_names[0], name)
        connection.close()
        write_here(sink, [piece])
    assert changes_of(one.records(), PLAIN) == delivered_by(piece)


@pytest.mark.long
def test_a_queue_that_was_deleted_is_told_by_a_truncation_and_made_again(published: Callable[..., Published]) -> None:
    one = published(queues=2)
    piece = Topic().piece(truncation())
    with closing(one.sink()) as sink:
        write_here(sink, [Topic("t.other").piece(*changes(1))])
        connection = one.server.connect()
        connection.channel().queue_delete(one.settings.queue_names[1])
        connection.close()
        with pytest.raises(ServiceError, match=rf"routed to no queue by queue {one.settings.queue_names[1]} "):
            write_here(sink, [piece])
        write_here(sink, [piece])
    assert [queue[-1]["op"] for queue in one.by_queue()] == ["truncate", "truncate"]


@pytest.mark.long
def test_no_more_are_under_way_than_is_set(published: Callable[..., Published]) -> None:
    """The answers are held back: so many are published, and no more."""
    one = published(in_flight=7, timeout_seconds=1)
    proxy, sink = one.behind(in_flight=7)
    with closing(sink):
        write_here(sink, [Topic("t.other").piece(*changes(1))])
        begun = proxy.publishes
        proxy.hold_answers()
        with pytest.raises(ServiceError, match="no confirmation within 1 s"):
            write_here(sink, [Topic().piece(*changes(100, keys=100))])
        assert proxy.publishes - begun == 7


@pytest.mark.promise("rabbitmq.confirmed")
@pytest.mark.long
def test_a_broker_that_says_nothing_holds_the_batch(published: Callable[..., Published]) -> None:
    one = published(timeout_seconds=1)
    proxy, sink = one.behind()
    piece = Topic().piece(*changes(50))
    with closing(sink):
        write_here(sink, [Topic("t.other").piece(*changes(1))])
        proxy.stall()
        with pytest.raises(ServiceError, match="no confirmation within 1 s"):
            write_here(sink, [piece])
        proxy.flow()
        write_here(sink, [piece])
    found = changes_of(once(record for record in one.records() if record["topic"] != "t.other"), PLAIN)
    assert found == delivered_by(piece)
    require_order(record for record in one.records() if record["topic"] != "t.other")


@pytest.mark.long
def test_a_connection_lost_between_batches_costs_nothing(published: Callable[..., Published]) -> None:
    one = published()
    proxy, sink = one.behind()
    topic = Topic()
    with closing(sink):
        write_here(sink, [topic.piece(*changes(2))])
        proxy.cut()
        client = sink._outlet._client

        def is_dropped() -> bool:
            client.begin()
            return client._connection is None

        until(is_dropped, "the end of the connection")
        assert write_here(sink, [topic.piece(*changes(2))]) == Summary(2, 2, 0)
    assert proxy.taken == 2


@pytest.mark.long
def test_an_idle_connection_stays(published: Callable[..., Published]) -> None:
    """RabbitMQ ends one that is silent for longer than its heartbeat."""
    one = published()
    proxy, sink = one.behind(heartbeat_seconds=1)
    topic = Topic()
    with closing(sink):
        write_here(sink, [topic.piece(*changes(2))])
        until(lambda: proxy.heartbeats >= 6, "six heartbeats")
        assert write_here(sink, [topic.piece(*changes(2))]) == Summary(2, 2, 0)
    assert proxy.taken == 1


@pytest.mark.long
def test_a_change_that_its_images_make_too_large_comes_without_them(
    published: Callable[..., Published], tmp_path: Path
) -> None:
    one = published(queues=1, images=f"sqlite:///{tmp_path}/images.db", largest_message=2500)
    piece = Topic().piece(LOG.insert((1,), (), 1, v="a"), LOG.insert((1,), (), 2, v="x" * 1000))
    with closing(open_sink("x", one.settings, "p")) as sink:
        assert write_here(sink, [piece]) == Summary(2, 2, 0)
    small, large = one.records()
    assert small["images"][0]["after"] == {"v": "a"}
    assert (large["images"], large["columns"]) == (None, {"v": "x" * 1000})


@pytest.mark.long
def test_the_pages_examples_run(
    published: Callable[..., Published], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = published(exchange="tailrace.changes")
    given = {"username": rabbitmq.USER, "password": rabbitmq.PASSWORD}
    write_by_page("rabbitmq", tmp_path, url=one.server.url, **given)
    moved = example("rabbitmq").replace("tailrace.changes.0", "{queue}")
    for queue in one.settings.queue_names:
        exec(moved.replace("{queue}", queue), {"host": "127.0.0.1", "port": one.server.port, **given})  # noqa: S102
    assert capsys.readouterr().out == "tailrace.change.insert {'id': 1}\n"
