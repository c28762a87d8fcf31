"""What the RabbitMQ sink says of a RabbitMQ that is not as it should be, on a real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest

from tailrace.local.ports import free_port
from tailrace_schemas.errors import ServiceError
from tailrace_spark.batch.delivery import Summary
from tailrace_spark.sinks.protocol import write_here
from tests import rabbitmq
from tests.services.certificates import Authority
from tests.unit.spark.sinks.change_log_contract import Topic
from tests.unit.spark.sinks.rabbitmq.published import LOG, Published, changes, write

pytestmark = pytest.mark.skipif(rabbitmq.missing() is not None, reason=str(rabbitmq.missing()))


@pytest.mark.long
def test_what_is_missing_of_an_owners_own_is_told_at_the_start(published: Callable[..., Published]) -> None:
    one = published(queues=3, declare=False)
    with closing(one.sink()) as sink, pytest.raises(ServiceError) as raised:
        sink.reach()
    name = one.settings.exchange
    words = "is missing in vhost /: make it, or set declare = true: 404 NOT_FOUND"
    assert f": exchange {name} {words} " in str(raised.value)
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
        write_here(sink, [Topic().piece(*changes(1))])
    queue = one.settings.queue_names[0]
    words = f": queue {queue} exists, made otherwise; with declare = false it is used as it is: 406 PRECONDITION_FAILED"
    assert words in str(raised.value)
    with closing(one.sink(declare=False)) as sink:
        assert write_here(sink, [Topic().piece(*changes(1))]).rows == 1


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
    large, other = sorted(one.letters.all, key=lambda letter: letter.reason == "no change")
    assert large.reason.endswith(" bytes as a message, more than the sink's largest_message, 2000")
    assert large.message == b"\x00message"
    assert other.reason == "no change"
    assert {record["columns"]["v"] for record in one.records()} == {"a", "b"}


@pytest.fixture(scope="module")
def full() -> Iterator[rabbitmq.Rabbitmq]:
    """A server that finds too little disk space."""
    server = rabbitmq.started(["disk_free_limit.absolute = 9000000GB"])
    yield server
    server.stop()


@pytest.mark.promise("rabbitmq.confirmed")
@pytest.mark.long
def test_a_rabbitmq_that_takes_no_messages_is_told(
    published: Callable[..., Published], full: rabbitmq.Rabbitmq
) -> None:
    """It reads nothing more, and still answers heartbeats."""
    one = published(full, queue_type="classic", timeout_seconds=2, heartbeat_seconds=1)
    with closing(one.sink()) as sink, pytest.raises(ServiceError) as raised:
        write_here(sink, [Topic().piece(*changes(6))])
    words = "no confirmation within 2 s; RabbitMQ takes no messages: it lacks memory or disk space"
    assert str(raised.value) == f"{one.settings.location}: {words}"
    assert one.records() == []


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
        assert write_here(sink, [Topic().piece(*changes(3))]).rows == 3
    with closing(one.sink(url=url)) as sink, pytest.raises(ServiceError, match="certificate verify failed"):
        sink.reach()
    assert len(one.records()) == 3


@pytest.mark.long
def test_a_plugin_that_is_not_there_is_told(
    published: Callable[..., Published], other: tuple[rabbitmq.Rabbitmq, Path]
) -> None:
    one = published(other[0])
    with closing(one.sink()) as sink, pytest.raises(ServiceError) as raised:
        write_here(sink, [Topic().piece(*changes(1))])
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
        write_here(sink, [piece])
    with closing(one.sink(largest_message=4096)) as sink:
        assert write_here(sink, [piece]) == Summary(1, 0, 1)
