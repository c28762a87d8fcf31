"""What every client of Kafka makes of librdkafka's answers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException

from tailrace_common.kafka.client import offset_of


def test_an_offset_that_no_broker_has_given_is_an_error() -> None:
    """-1 is an answer: of a time behind all records."""
    assert [offset_of(SimpleNamespace(offset=offset)) for offset in (0, 7, -1)] == [0, 7, -1]
    with pytest.raises(KafkaException) as raised:
        offset_of(SimpleNamespace(offset=OFFSET_INVALID))
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT
