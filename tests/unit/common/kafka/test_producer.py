"""How a producer waits for Kafka; whatever needs a broker is in tests/integration/common/kafka."""

from __future__ import annotations

from contextlib import closing

import pytest

from tailrace.publish.record import Record
from tailrace_common.kafka import KafkaAppends, Sizes, StoppedError
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


def test_a_producer_fits_topics_whose_limits_it_was_opened_with() -> None:
    """One that is opened anew makes batches that all of them take."""
    limits: dict[str, int] = {}
    small = [Record("small", 0, None, b"")]
    with closing(KafkaAppends({}, clock=lambda: 0.0, sizes=Sizes(limits=limits))) as producer:
        producer.open()
        assert producer.fits(small)
        limits["small"] = 300_000
        assert not producer.fits(small)
        assert producer.fits([Record("another", 0, None, b"")])
        producer.close()
        producer.open()
        assert producer.fits(small)
