"""What every client of Kafka makes of librdkafka's answers."""

from __future__ import annotations

import time
from contextlib import closing
from types import SimpleNamespace

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException

from tailrace.local.ports import free_port
from tailrace_common.kafka.client import offset_of
from tailrace_common.kafka.transactions import KafkaAppends
from tailrace_schemas.errors import ServiceError


def test_an_offset_that_no_broker_has_given_is_an_error() -> None:
    """-1 is an answer: of a time behind all records."""
    assert [offset_of(SimpleNamespace(offset=offset)) for offset in (0, 7, -1)] == [0, 7, -1]
    with pytest.raises(KafkaException) as raised:
        offset_of(SimpleNamespace(offset=OFFSET_INVALID))
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT


def test_an_error_says_what_the_connections_said() -> None:
    """Of a wrong password or address librdkafka tells by poll alone, for which reading topics does not wait."""
    nobody = {"bootstrap.servers": f"127.0.0.1:{free_port('127.0.0.1')}"}
    producer = KafkaAppends(nobody, clock=time.monotonic, timeout=2)
    producer.open()
    with closing(producer), pytest.raises(ServiceError, match=r"reading topics: .*Connection refused"):
        producer.partitions("t")
