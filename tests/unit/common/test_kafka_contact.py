"""The first request to a Kafka: what is said of an address at which there is none, and when."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException

from tailrace_common.kafka import TopicReader
from tailrace_common.kafka.client import ClientErrors, FirstContact
from tailrace_common.kafka.reader import PartitionReader
from tailrace_common.unreachable import UnreachableError

TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT))
CONFIG = {"bootstrap.servers": "kafka-1:9092"}
REFUSED = KafkaError(KafkaError._TRANSPORT, "kafka-1:9092: Connect failed: Connection refused")
ALL_DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN)


def contact(*reports: KafkaError) -> FirstContact:
    """One whose client reports these errors when it is polled."""
    errors = ClientErrors()

    def poll() -> None:
        for report in reports:
            errors(report)

    return FirstContact(CONFIG, errors, poll)


def answering(answers: Iterator[str | Exception], given: list[float]) -> Callable[[float], str]:
    """A request that notes its seconds, and answers these in turn."""

    def request(seconds: float) -> str:
        given.append(seconds)
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return request


@pytest.mark.parametrize("silence", [TIMED_OUT, TimeoutError()])
def test_where_no_broker_can_be_connected_to_it_gives_up_after_three_seconds(silence: Exception) -> None:
    given: list[float] = []
    with pytest.raises(UnreachableError) as raised:
        contact(REFUSED, ALL_DOWN).ask(answering(iter((silence,)), given), 10)
    assert given == [3]
    assert str(raised.value) == (
        "Cannot connect to Kafka at kafka-1:9092 (kafka-1:9092: Connect failed: Connection refused). "
        "Start Kafka or fix bootstrap.servers."
    )


def test_a_slow_answer_is_waited_for_and_said(caplog: pytest.LogCaptureFixture) -> None:
    given: list[float] = []
    with caplog.at_level(logging.WARNING):
        assert contact().ask(answering(iter((TIMED_OUT, "answer")), given), 10) == "answer"
    assert given == [3, 7]
    assert "Kafka at kafka-1:9092 (bootstrap.servers) has not answered for 3 s; still waiting" in caplog.text


def test_no_answer_at_all_names_the_address_and_the_settings() -> None:
    with pytest.raises(UnreachableError, match=r"Kafka at kafka-1:9092 \(no answer in 10 s\)\. Is the broker up"):
        contact().ask(answering(iter((TIMED_OUT, TIMED_OUT)), []), 10)


@pytest.mark.parametrize("silence", [TIMED_OUT, TimeoutError()])
def test_after_the_first_answer_every_request_has_all_its_time(silence: Exception) -> None:
    """The brokers were there: they may restart. Of a future of librdkafka's Python raises its own error."""
    first, given = contact(ALL_DOWN), list[float]()
    first.ask(answering(iter(("answer",)), given), 10)
    with pytest.raises(KafkaException):
        first.ask(answering(iter((silence,)), given), 10)
    assert given == [3, 10]


def test_other_errors_are_left_to_the_caller() -> None:
    with pytest.raises(KafkaException):
        contact(ALL_DOWN).ask(answering(iter((KafkaException(KafkaError(KafkaError._AUTHENTICATION)),)), []), 10)


@pytest.mark.slow
@pytest.mark.parametrize(
    "read",
    [lambda config: TopicReader(config, "t"), lambda config: list(PartitionReader(config, "t", 0).read_to_end())],
)
def test_readers_say_that_nothing_listens(read: Callable[[dict[str, str]], object]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(UnreachableError, match=rf"Cannot connect to Kafka at {address} \(.* Connection refused"):
        read({"bootstrap.servers": address})
