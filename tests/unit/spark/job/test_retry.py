"""A batch's needs are retried: with growing pauses, until they are met, given up, or the stream is stopped."""

from __future__ import annotations

import logging

import pytest

from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.job.endings import StoppedError
from tailrace_spark.job.metrics import StreamMetrics
from tailrace_spark.job.progress import PROCESSING
from tailrace_spark.job.retry import Blockage, Retry


class Outage:
    """A service that answers from the nth attempt on, and a clock that moves while somebody waits."""

    def __init__(self, answers_at: int | None) -> None:
        self._answers_at = answers_at
        self.attempts = 0
        self.now = 100.0
        self.stops = False
        self.pauses: list[float] = []
        self.status: list[str] = []

    def attempt(self) -> str:
        self.attempts += 1
        if self._answers_at is None or self.attempts < self._answers_at:
            raise ServiceError("no answer")
        return "result"

    def pause(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.now += seconds
        return self.stops

    def retry(self, metrics: StreamMetrics | None = None) -> Retry:
        return Retry(metrics or StreamMetrics(), self.pause, self.status.append, lambda: self.now)


def test_what_succeeds_at_once_does_not_block() -> None:
    outage, blocked = Outage(1), Blockage(7)
    assert outage.retry().until_done(blocked, "sink", outage.attempt) == "result"
    assert (blocked.seconds, list(blocked.reasons), outage.pauses, outage.status) == (0.0, [], [], [])


@pytest.mark.parametrize(("need", "longest"), [("sink", 30.0), ("generations", 2.0), ("topics", 2.0)])
def test_pauses_grow_up_to_a_limit_that_is_lower_for_kafka(need: str, longest: float) -> None:
    outage, blocked = Outage(12), Blockage(7)
    assert outage.retry().until_done(blocked, need, outage.attempt) == "result"
    assert outage.pauses[:3] == [0.5, 1.0, 2.0]
    assert len(outage.pauses) == 11
    assert outage.pauses[-1] == max(outage.pauses) == longest
    assert blocked.seconds == sum(outage.pauses)
    assert list(blocked.reasons) == [f"{need}: no answer"]


def test_status_log_and_metrics_say_why_until_it_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    metrics, outage = StreamMetrics(), Outage(3)
    metrics.alive()
    ready: list[bool] = []

    def pause(_seconds: float) -> bool:
        ready.append(metrics.ready)
        return False

    retry = Retry(metrics, pause, outage.status.append, lambda: outage.now)
    with caplog.at_level(logging.WARNING):
        retry.until_done(Blockage(7), "sink", outage.attempt)
    assert outage.status == ["Batch 7 waits for the sink: no answer"] * 2 + [PROCESSING]
    assert "batch 7 waits for the sink: no answer. Next try in 0.5 s." in caplog.text
    assert ready == [False, False]
    assert metrics.ready


def test_seconds_of_several_needs_of_a_batch_add_up() -> None:
    blocked = Blockage(7)
    for need, attempts, seconds in (("generations", 2, 0.5), ("sink", 3, 2.0)):
        outage = Outage(attempts)
        outage.retry().until_done(blocked, need, outage.attempt)
        assert blocked.seconds == seconds
    assert list(blocked.reasons) == ["generations: no answer", "sink: no answer"]


def test_a_stream_that_ends_by_itself_gives_up() -> None:
    outage = Outage(None)
    retry = outage.retry()
    retry.patience = 10.0
    given_up = r"batch 7 is given up after 10 s \(stream.once_wait_seconds\) for the sink: no answer"
    with pytest.raises(ServiceError, match=given_up):
        retry.until_done(Blockage(7), "sink", outage.attempt)
    assert outage.now >= 110.0


def test_a_stop_ends_the_wait_and_not_the_attempt() -> None:
    outage = Outage(None)
    outage.stops = True
    with pytest.raises(StoppedError):
        outage.retry().until_done(Blockage(7), "sink", outage.attempt)
    assert (outage.attempts, len(outage.pauses)) == (1, 1)


def test_other_errors_are_not_retried() -> None:
    def refuse() -> None:
        raise SettingsError("no such database")

    outage = Outage(None)
    with pytest.raises(SettingsError):
        outage.retry().until_done(Blockage(7), "sink", refuse)
    assert outage.pauses == []
