"""What is done about Kafka's errors."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from tailrace_common.kafka.errors import ANSWERS, Answer, answer_to
from tailrace_common.kafka.outgoing import Sizes

CODES = {name: code for name, code in vars(KafkaError).items() if isinstance(code, int) and code != KafkaError.NO_ERROR}

CASES = [
    # code, what librdkafka says of it, answer
    ("_FENCED", {"fatal": True}, Answer.FENCED),
    ("PRODUCER_FENCED", {"fatal": True}, Answer.FENCED),
    ("INVALID_PRODUCER_EPOCH", {"abort": True}, Answer.FENCED),
    ("_FATAL", {"fatal": True}, Answer.RENEW),
    ("UNKNOWN_PRODUCER_ID", {"abort": True}, Answer.RENEW),
    ("INVALID_PRODUCER_ID_MAPPING", {}, Answer.RENEW),
    ("OUT_OF_ORDER_SEQUENCE_NUMBER", {"retriable": True}, Answer.RENEW),
    ("INVALID_TXN_STATE", {"fatal": True}, Answer.RENEW),
    ("TRANSACTION_ABORTABLE", {"abort": True}, Answer.RENEW),
    ("_MSG_TIMED_OUT", {}, Answer.RENEW),
    ("_STATE", {}, Answer.RENEW),
    ("CONCURRENT_TRANSACTIONS", {}, Answer.RETRY),
    ("CONCURRENT_TRANSACTIONS", {"abort": True}, Answer.RENEW),
    ("NOT_COORDINATOR", {"retriable": True}, Answer.RETRY),
    ("COORDINATOR_LOAD_IN_PROGRESS", {}, Answer.RETRY),
    ("_TIMED_OUT", {"retriable": True}, Answer.RETRY),
    ("_TIMED_OUT", {"retriable": True, "abort": True}, Answer.RENEW),
    ("REQUEST_TIMED_OUT", {"retriable": True}, Answer.RETRY),
    ("REQUEST_TIMED_OUT", {}, Answer.RENEW),
    ("TOPIC_AUTHORIZATION_FAILED", {"abort": True}, Answer.REFUSED),
    ("_UNKNOWN_TOPIC", {}, Answer.REFUSED),
    ("UNKNOWN_TOPIC_OR_PART", {"retriable": True}, Answer.REFUSED),
    ("INVALID_RECORD", {}, Answer.REFUSED),
    ("POLICY_VIOLATION", {}, Answer.REFUSED),
    ("MSG_SIZE_TOO_LARGE", {}, Answer.REFUSED),
    ("INVALID_TRANSACTION_TIMEOUT", {"fatal": True}, Answer.SETTINGS),
    ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", {"fatal": True}, Answer.RENEW),
    ("SASL_AUTHENTICATION_FAILED", {}, Answer.RENEW),
]


@pytest.mark.promise("agent.answers-to-kafka")
@pytest.mark.parametrize(("name", "said", "answer"), CASES)
def test_the_answer_to_an_error(name: str, said: dict[str, bool], answer: Answer) -> None:
    assert answer_to(CODES[name], **said) is answer


@pytest.mark.promise("agent.answers-to-kafka")
@pytest.mark.parametrize("name", sorted(CODES))
def test_no_error_at_all_is_passed_over(name: str) -> None:
    """Whatever librdkafka says of a code, an answer comes; nothing that it calls fatal or abortable is tried again."""
    for said in ({}, {"retriable": True}):
        assert isinstance(answer_to(CODES[name], **said), Answer)
    for broken in ({"abort": True}, {"fatal": True}, {"abort": True, "retriable": True}):
        assert answer_to(CODES[name], **broken) is not Answer.RETRY


def test_a_code_stands_in_the_table_once() -> None:
    assert set(ANSWERS) <= set(CODES.values())


def test_a_batch_is_no_larger_than_the_smallest_topic_takes() -> None:
    """And the buffer holds the largest record, whatever was set."""
    assert Sizes().settings()["batch.size"] == 1_000_000
    settings = Sizes(buffer=1 << 20, largest=9 << 20, limits={"a": 5000, "b": 9 << 20}).settings()
    assert settings["batch.size"] == 5000
    assert settings["message.max.bytes"] > 9 << 20
    assert settings["queue.buffering.max.kbytes"] * 1024 > 9 << 20


@pytest.mark.promise("agent.bounded-memory")
def test_the_buffer_is_as_large_as_the_settings_say() -> None:
    """librdkafka's own default is a gibibyte."""
    settings = Sizes(buffer=32 << 20).settings()
    assert 32 << 10 <= settings["queue.buffering.max.kbytes"] <= (32 << 10) + 1
