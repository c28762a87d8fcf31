"""`stream --once` waits for Kafka for a bounded time, and says so each time it tries again."""

from __future__ import annotations

import pytest

from tailrace_schemas.errors import ServiceError
from tailrace_spark.job.endings import await_kafka


class Silence:
    """A Kafka that answers from the nth question on, and a clock that goes while somebody waits."""

    def __init__(self, answers_at: int | None) -> None:
        self._answers_at = answers_at
        self.asked = 0
        self.now = 0.0
        self.stops = False

    def ask(self) -> None:
        self.asked += 1
        self.now += 3.0
        if self._answers_at is None or self.asked < self._answers_at:
            raise ServiceError("Kafka: no answer")

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return self.stops


@pytest.mark.promise("stream.once-without-kafka")
def test_it_ends_with_an_error_after_so_long(caplog: pytest.LogCaptureFixture) -> None:
    silence = Silence(None)
    with pytest.raises(ServiceError, match=r"has not answered for 12 s .*Kafka: no answer"):
        await_kafka(silence.ask, 12.0, wait=silence.wait, clock=lambda: silence.now)
    assert silence.now <= 12.0 + 3.0
    assert caplog.text.count("tries again for") == silence.asked - 1 >= 2


def test_it_goes_on_once_kafka_answers(caplog: pytest.LogCaptureFixture) -> None:
    silence = Silence(3)
    await_kafka(silence.ask, 60.0, wait=silence.wait, clock=lambda: silence.now)
    assert silence.asked == 3
    assert caplog.text.count("tries again for") == 2


def test_a_stop_ends_the_wait() -> None:
    silence = Silence(None)
    silence.stops = True
    await_kafka(silence.ask, 60.0, wait=silence.wait, clock=lambda: silence.now)
    assert silence.asked == 1
