"""How a producer waits for Kafka; whatever needs a broker is in tests/integration/common/kafka."""

from __future__ import annotations

from contextlib import closing

import pytest

from tailrace_common.kafka import KafkaAppends, StoppedError
from tests.support.clock import ManualClock


def test_who_is_told_to_stop_waits_for_kafka_a_moment_longer() -> None:
    """Seconds, counted from when it first hears of it: what Kafka takes by then is delivered."""
    clock, told = ManualClock(), False
    with closing(KafkaAppends({}, clock=clock, stop=lambda: told)) as producer:
        clock.wait(1000)
        producer.wait_on()
        told = True
        producer.wait_on()
        clock.wait(2)
        producer.wait_on()
        clock.wait(2)
        with pytest.raises(StoppedError, match="told to stop"):
            producer.wait_on()
