"""The RabbitMQ sink against a real RabbitMQ: the contract of change logs, and everything that goes wrong with one."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tailrace.local.ports import free_port
from tailrace_common.settings_sink_rabbitmq import RabbitmqSinkSettings
from tailrace_schemas.change import Change, Deletion, Op
from tailrace_schemas.errors import ServiceError
from tailrace_spark.sinks.change_log import ChangeLogSink
from tailrace_spark.sinks.dead_letter_file import DeadLetterFile
from tailrace_spark.sinks.protocol import OrderedSink, Piece, Summary
from tailrace_spark.sinks.rabbitmq import RabbitmqOutlet
from tailrace_spark.sinks.rabbitmq_client import RabbitmqClient
from tests import rabbitmq
from tests.services.certificates import Authority
from tests.unit.spark.cassandra import Log, source
from tests.unit.spark.sinks.amqp_proxy import FrameProxy
from tests.unit.spark.sinks.change_log_contract import (
    PLAIN,
    ChangeLogContract,
    Topic,
    changes_of,
    delivered_by,
    once,
    place_of,
    require_order,
)
from tests.unit.spark.sinks.test_documents import example, run

pytestmark = pytest.mark.skipif(rabbitmq.missing() is not None, reason=str(rabbitmq.missing()))

LOG = Log(PLAIN)
_numbers = count()
_SECONDS = 30


class Published:
    """An exchange of its own with its queues, and what their consumers have had."""

    exactly_once = False

    def __init__(self, directory: Path, server: rabbitmq.Rabbitmq, **settings: object) -> None:
        self.server = server
        self.letters = directory / "letters.jsonl"
        self._had: dict[str, list[dict[str, Any]]] = {}
        self._proxies: list[FrameProxy] = []
        given = {"exchange": f"e{next(_numbers)}", "username": rabbitmq.USER, "password": rabbitmq.PASSWORD, **settings}
        self.settings = RabbitmqSinkSettings.model_validate({"url": server.url, **given})

    def open(self, dies_after: int | None = None) -> OrderedSink:
        return self.sink() if dies_after is None else self.behind(dies_after)[1]

    def sink(self, **more: object) -> ChangeLogSink:
        settings = self.settings.model_copy(update=more)
        client = RabbitmqClient("there", settings)
        return ChangeLogSink(RabbitmqOutlet(client, settings, DeadLetterFile(self.letters)))

    def behind(self, dies_after: int | None = None, **more: object) -> tuple[FrameProxy, ChangeLogSink]:
        """A sink behind a proxy."""
        proxy = FrameProxy(("127.0.0.1", self.server.port), dies_after)
        proxy.__enter__()
        self._proxies.append(proxy)
        return proxy, self.sink(url=f"amqp://127.0.0.1:{proxy.port}", **more)

    def by_queue(self) -> list[list[dict[str, Any]]]:
        """What every queue has had, in its order."""
        connection = self.server.connect()
        channel = connection.channel()
        for queue in self.settings.queue_names:
            had = self._had.setdefault(queue, [])
            with suppress(Exception):  # a queue that nobody made yet
                while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
                    had.append(json.loads(got[2]))
            channel = channel if channel.is_open else connection.channel()
        connection.close()
        return list(self._had.values())

    def records(self) -> Sequence[Mapping[str, Any]]:
        """As one who reads all queues, and goes on behind a truncation when every queue has come to it."""
        found: list[Mapping[str, Any]] = []
        left: list[list[Mapping[str, Any]]] = [list(queue) for queue in self.by_queue()]
        firsts: list[list[Mapping[str, Any]]] = [once(queue) for queue in left]
        truncations = [place_of(one) for one in firsts[0] if one["op"] == "truncate"]
        for place in truncations:
            ends = [next(at for at, one in enumerate(queue) if place_of(one) == place) for queue in firsts]
            for end, queue in zip(ends, firsts, strict=True):
                found += queue[:end]
            found.append(firsts[0][ends[0]])
            firsts = [queue[end + 1 :] for end, queue in zip(ends, firsts, strict=True)]
        for queue in firsts if truncations else left:
            found += queue
        return found

    def dead_letters(self) -> Sequence[Mapping[str, Any]]:
        if not self.letters.exists():
            return []
        return [json.loads(line) for line in self.letters.read_text(encoding="utf-8").split("\n") if line]

    def own(
        self, kind: str = "x-consistent-hash", arguments: Mapping[str, object] | None = None, *, bind: bool = True
    ) -> None:
        """Its owner makes exchange and queues."""
        connection = self.server.connect()
        channel = connection.channel()
        channel.exchange_declare(self.settings.exchange, exchange_type=kind, durable=True)
        for queue in self.settings.queue_names:
            channel.queue_declare(
                queue, durable=True, arguments={"x-queue-type": self.settings.queue_type, **(arguments or {})}
            )
            if bind:
                channel.queue_bind(queue, self.settings.exchange, routing_key="1")
        connection.close()

    def close(self) -> None:
        for proxy in self._proxies:
            proxy.__exit__(None, None, None)
        connection = self.server.connect()
        channel = connection.channel()
        channel.exchange_delete(self.settings.exchange)
        for queue in self.settings.queue_names:
            channel.queue_delete(queue)
        connection.close()


@pytest.fixture
def published(tmp_path: Path) -> Iterator[Callable[..., Published]]:
    """Makes exchanges, and takes them away."""
    made: list[Published] = []

    def new(server: rabbitmq.Rabbitmq | None = None, **settings: object) -> Published:
        directory = tmp_path / str(len(made))
        directory.mkdir()
        made.append(Published(directory, server or rabbitmq.server(), **settings))
        return made[-1]

    yield new
    for one in made:
        one.close()


@pytest.mark.long
class TestRabbitmq(ChangeLogContract):
    @pytest.fixture(params=["classic, 1 queue", "quorum, 3 queues"])
    def stores(self, published: Callable[..., Published], request: pytest.FixtureRequest) -> Callable[[], Published]:
        kind, number = request.param.split(",")
        return lambda: published(queue_type=kind, queues=int(number.split()[0]))


def changes(number: int, keys: int = 3) -> list[Change]:
    return [LOG.update((at % keys,), (), at, w=at) for at in range(number)]


def truncation() -> Change:
    return Change(
        op=Op.TRUNCATE, table=PLAIN, token=0, key=None, deletion=Deletion(5, 5), digest=bytes(16), source=source()
    )


def write(one: Published, piece: Piece) -> Summary:
    with closing(one.sink()) as sink:
        return sink.write([piece])


@pytest.mark.long
def test_a_message_says_what_it_is(published: Callable[..., Published]) -> None:
    one = published(queues=1)
    write(one, Topic().piece(LOG.insert((1,), (), 1_760_000_000_000_000, v="a")))
    connection = one.server.connect()
    method, properties, body = connection.channel().basic_get(one.settings.queue_names[0])
    connection.close()
    assert (method.exchange, method.routing_key) == (one.settings.exchange, '{"id":1}')
    assert (properties.content_type, properties.type) == ("application/json", "tailrace.change.insert")
    assert (properties.delivery_mode, properties.app_id, properties.timestamp) == (2, "tailrace", 1_760_000_000)
    assert len(properties.message_id) == 32
    headers = {name: properties.headers[name] for name in ("topic", "partition", "offset", "table")}
    assert headers == {"topic": "t.shop.plain", "partition": 1, "offset": 0, "table": "shop.plain"}
    assert json.loads(body)["columns"] == {"v": "a"}


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
        sink.write([before])
        with pytest.raises(ServiceError, match=r"^amqp://127\.0\.0\.1:\d+, exchange e\d+: "):
            sink.write(pieces())
        with pytest.raises(ServiceError, match="Connection refused"):
            sink.write([first, second])
        one.server.start()
        assert sink.write([first, second]) == Summary(180, 180, 0)
    records = one.records()
    assert changes_of(once(records), PLAIN) == delivered_by(before, first, second)
    require_order(records)


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
                sink.write([piece])
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
        for method, _, body in channel.consume(one.settings.queue_names[0], auto_ack=True, inactivity_timeout=0.01):
            if method is not None:
                had.append(json.loads(body))
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
    for _ in range(2000):
        with suppress(ServiceError):
            sink.write([piece])
            return
    raise AssertionError("it is never taken")


@pytest.mark.long
def test_what_no_queue_takes_is_an_error_and_comes_when_one_does(published: Callable[..., Published]) -> None:
    one = published(queues=1, declare=False)
    one.own("fanout", bind=False)
    piece = Topic().piece(*changes(6))
    with closing(one.sink()) as sink:
        with pytest.raises(ServiceError) as raised:
            sink.write([piece])
        name = one.settings.exchange
        assert str(raised.value) == (
            f"{one.settings.url}, exchange {name}: a message is routed to no queue by exchange {name} "
            "(t.shop.plain, partition 0, offset 0): bind queues to it, or set declare = true"
        )
        connection = one.server.connect()
        connection.channel().queue_bind(one.settings.queue_names[0], name)
        connection.close()
        sink.write([piece])
    assert changes_of(one.records(), PLAIN) == delivered_by(piece)


@pytest.mark.long
def test_a_queue_that_was_deleted_is_told_by_a_truncation_and_made_again(published: Callable[..., Published]) -> None:
    one = published(queues=2)
    piece = Topic().piece(truncation())
    with closing(one.sink()) as sink:
        sink.write([Topic("t.other").piece(*changes(1))])
        connection = one.server.connect()
        connection.channel().queue_delete(one.settings.queue_names[1])
        connection.close()
        with pytest.raises(ServiceError, match=rf"routed to no queue by queue {one.settings.queue_names[1]} "):
            sink.write([piece])
        sink.write([piece])
    assert [queue[-1]["op"] for queue in one.by_queue()] == ["truncate", "truncate"]


@pytest.mark.long
def test_what_is_missing_of_an_owners_own_is_told_at_the_start(published: Callable[..., Published]) -> None:
    one = published(queues=3, declare=False)
    with closing(one.sink()) as sink, pytest.raises(ServiceError) as raised:
        sink.reach()
    name = one.settings.exchange
    assert f": exchange {name} is missing in vhost /: make it, or set declare = true: 404 " in str(raised.value)
    one.own()
    one.sink().reach()
    connection = one.server.connect()
    connection.channel().queue_delete(f"{name}.2")
    connection.close()
    with closing(one.sink()) as sink, pytest.raises(ServiceError, match=rf": queue {name}\.2 is missing in vhost /: "):
        sink.reach()


@pytest.mark.long
def test_nothing_is_made_by_looking(published: Callable[..., Published]) -> None:
    one = published()
    with closing(one.sink()) as sink:
        sink.reach()
    with closing(one.sink(declare=False)) as sink, pytest.raises(ServiceError, match=r"exchange .* is missing"):
        sink.reach()


@pytest.mark.long
def test_queues_that_were_made_otherwise_are_told(published: Callable[..., Published]) -> None:
    one = published(queues=2)
    one.own()
    with closing(one.sink()) as sink, pytest.raises(ServiceError) as raised:
        sink.write([Topic().piece(*changes(1))])
    queue = one.settings.queue_names[0]
    words = f": queue {queue} exists, made otherwise; with declare = false it is used as it is: 406 PRECONDITION_FAILED"
    assert words in str(raised.value)
    with closing(one.sink(declare=False)) as sink:
        assert sink.write([Topic().piece(*changes(1))]).rows == 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"password": "hunter3"}, "ACCESS_REFUSED|authenticat"),
        ({"username": "nobody"}, "ACCESS_REFUSED|authenticat"),
        ({"vhost": "none"}, "vhost none not found"),
    ],
)
def test_who_may_not_is_told_without_secrets(
    published: Callable[..., Published], wrong: dict[str, str], words: str
) -> None:
    one = published(**wrong)
    one_right = one.settings
    with closing(one.sink()) as sink, pytest.raises(ServiceError, match=words) as raised:
        sink.reach()
    assert "hunter" not in str(raised.value)
    assert "hunter" not in repr(raised.value.__cause__)
    assert one_right.username not in str(raised.value).replace("user 'tailrace'", "")


@pytest.mark.long
def test_a_change_that_is_too_large_is_set_aside_once(published: Callable[..., Published]) -> None:
    one = published(queues=1, largest_message=2000)
    piece = Topic().piece(
        LOG.insert((1,), (), 1, v="a"), LOG.insert((1,), (), 2, v="x" * 2000), LOG.insert((1,), (), 3, v="b"), letters=1
    )
    for _ in range(2):
        assert write(one, piece) == Summary(3, 2, 2)
    large, other = sorted(one.dead_letters(), key=lambda letter: "change" not in letter)
    assert large["reason"].endswith(" bytes as a message, more than the sink's largest_message, 2000")
    assert large["change"]["columns"] == {"v": "x" * 2000}
    assert large["message"] == b"\x00message".hex()
    assert other["reason"] == "no change"
    assert {record["columns"]["v"] for record in one.records()} == {"a", "b"}


@pytest.mark.long
def test_no_more_are_under_way_than_is_set(published: Callable[..., Published]) -> None:
    """The answers are held back: so many are published, and no more."""
    one = published(in_flight=7, timeout_seconds=1)
    proxy, sink = one.behind(in_flight=7)
    with closing(sink):
        sink.write([Topic("t.other").piece(*changes(1))])
        begun = proxy.publishes
        proxy.hold_answers()
        with pytest.raises(ServiceError, match="no confirmation within 1 s"):
            sink.write([Topic().piece(*changes(100, keys=100))])
        assert proxy.publishes - begun == 7


@pytest.mark.long
def test_a_broker_that_says_nothing_holds_the_batch(published: Callable[..., Published]) -> None:
    one = published(timeout_seconds=1)
    proxy, sink = one.behind()
    piece = Topic().piece(*changes(50))
    with closing(sink):
        sink.write([Topic("t.other").piece(*changes(1))])
        proxy.stall()
        with pytest.raises(ServiceError, match="no confirmation within 1 s"):
            sink.write([piece])
        proxy.flow()
        sink.write([piece])
    found = changes_of(once(record for record in one.records() if record["topic"] != "t.other"), PLAIN)
    assert found == delivered_by(piece)
    require_order(record for record in one.records() if record["topic"] != "t.other")


@pytest.mark.long
def test_a_connection_lost_between_batches_costs_nothing(published: Callable[..., Published]) -> None:
    one = published()
    proxy, sink = one.behind()
    topic = Topic()
    with closing(sink):
        sink.write([topic.piece(*changes(2))])
        proxy.cut()
        client = sink._outlet._client  # type: ignore[attr-defined]  # a RabbitmqOutlet's
        until(lambda: client._session.failed)
        assert sink.write([topic.piece(*changes(2))]) == Summary(2, 2, 0)
    assert proxy.taken == 2


@pytest.mark.long
def test_an_idle_connection_stays(published: Callable[..., Published]) -> None:
    """RabbitMQ ends one that is silent for longer than its heartbeat."""
    one = published()
    proxy, sink = one.behind(heartbeat_seconds=1)
    topic = Topic()
    with closing(sink):
        sink.write([topic.piece(*changes(2))])
        until(lambda: proxy.heartbeats >= 6)
        assert sink.write([topic.piece(*changes(2))]) == Summary(2, 2, 0)
    assert proxy.taken == 1


def until(is_so: Callable[[], bool]) -> None:
    """Wait for a condition."""
    end = time.monotonic() + _SECONDS
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


@cache
def other_server(directory: Path) -> rabbitmq.Rabbitmq:
    """One with TLS, small messages and no plugin."""
    authority = Authority()
    issued = authority.issue("rabbitmq")
    (directory / "ca.pem").write_text(authority.certificate)
    (directory / "cert.pem").write_text(issued.certificate)
    (directory / "key.pem").write_text(issued.key)
    port = free_port("127.0.0.1")
    lines = [
        f"listeners.ssl.local = 127.0.0.1:{port}",
        f"ssl_options.cacertfile = {directory / 'ca.pem'}",
        f"ssl_options.certfile = {directory / 'cert.pem'}",
        f"ssl_options.keyfile = {directory / 'key.pem'}",
        "max_message_size = 4096",
    ]
    server = rabbitmq.started(lines, plugins="")
    server.tls_port = port
    return server


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[rabbitmq.Rabbitmq, Path]]:
    directory = tmp_path_factory.mktemp("rabbitmq")
    server = other_server(directory)
    yield server, directory
    server.stop()


@pytest.mark.long
def test_it_speaks_tls_to_whom_it_trusts(
    published: Callable[..., Published], other: tuple[rabbitmq.Rabbitmq, Path]
) -> None:
    server, directory = other
    one = published(server, queues=1, declare=False)
    one.own("fanout")
    url = f"amqps://localhost:{server.tls_port}"
    with closing(one.sink(url=url, tls_ca_file=directory / "ca.pem")) as sink:
        assert sink.write([Topic().piece(*changes(3))]).rows == 3
    with closing(one.sink(url=url)) as sink, pytest.raises(ServiceError, match="certificate verify failed"):
        sink.reach()
    assert len(one.records()) == 3


@pytest.mark.long
def test_a_plugin_that_is_not_there_is_told(
    published: Callable[..., Published], other: tuple[rabbitmq.Rabbitmq, Path]
) -> None:
    one = published(other[0])
    with closing(one.sink()) as sink, pytest.raises(ServiceError) as raised:
        sink.write([Topic().piece(*changes(1))])
    words = "RabbitMQ lacks a plugin: rabbitmq-plugins enable rabbitmq_consistent_hash_exchange"
    assert f"exchange {one.settings.exchange}: {words}" in str(raised.value)


@pytest.mark.long
def test_a_message_that_rabbitmq_finds_too_large_names_the_setting(
    published: Callable[..., Published], other: tuple[rabbitmq.Rabbitmq, Path]
) -> None:
    """And holds the batch, until that is set."""
    one = published(other[0], queues=1, declare=False)
    one.own("fanout")
    piece = Topic().piece(LOG.insert((1,), (), 1, v="x" * 5000))
    with closing(one.sink()) as sink, pytest.raises(ServiceError, match="set largest_message to RabbitMQ's max_messag"):
        sink.write([piece])
    with closing(one.sink(largest_message=4096)) as sink:
        assert sink.write([piece]) == Summary(1, 0, 1)


@pytest.mark.long
def test_the_pages_examples_run(
    published: Callable[..., Published], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = published(exchange="tailrace.changes")
    given = {"username": rabbitmq.USER, "password": rabbitmq.PASSWORD}
    run("rabbitmq", url=one.server.url, directory=tmp_path, **given)
    moved = example("rabbitmq", number=1).replace("tailrace.changes.0", "{queue}")
    for queue in one.settings.queue_names:
        exec(moved.replace("{queue}", queue), {"host": "127.0.0.1", "port": one.server.port, **given})  # noqa: S102
    assert capsys.readouterr().out == "tailrace.change.insert {'id': 1}\n"
