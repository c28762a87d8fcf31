"""Tasks of the HTTP sink beside each other: what readers see of two attempts and of late ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from tailrace_common.backoff import Waits
from tailrace_schemas.errors import ServiceError
from tailrace_spark.batch.delivery import MicroBatch, Summary
from tailrace_spark.sinks.changelog.sink import LogWriter
from tailrace_spark.sinks.http.client import HttpSender
from tailrace_spark.sinks.http.outlet import HttpOpener, HttpOutlet
from tailrace_spark.sinks.http.settings import HttpSinkSettings
from tailrace_spark.sinks.registry import open_sink
from tests.unit.spark.sinks.change_log_contract import PARTITION, in_turn, once, place_of, require_order
from tests.unit.spark.sinks.http.endpoint import TAKEN, Answer, Endpoint, Request
from tests.unit.spark.sinks.in_tasks import attempt, interrupted

_workers = count()


@dataclass(frozen=True)
class Worker(HttpOpener):
    """Makes the outlet of one worker process: that of another number has connections and a memory of its own."""

    number: int = 0

    def open(self) -> HttpOutlet:
        sender = HttpSender(self.name, self.settings, waits=Waits(0.001, 0.002))
        return HttpOutlet(sender, self.settings, self.letters)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """Takes everything."""
    with closing(Endpoint()) as endpoint:
        yield endpoint


def task_at(endpoint: Endpoint, number: int = 0, **settings: object) -> LogWriter:
    """The task of a batch in a worker process of its own."""
    given = {"url": endpoint.url, "batch_records": 2, "lanes": 2, "retry_seconds": 0.02, "breaker_failures": 1000}
    section = HttpSinkSettings.model_validate({**given, **settings})
    return LogWriter(Worker("there", section, number=next(_workers)), MicroBatch("s", number, {PARTITION: 1 << 40}))


def offsets(endpoint: Endpoint) -> list[int]:
    """Of all records that were taken, whatever their requests' ids, in their order of arrival."""
    return [change["offset"] for request in endpoint.requests for change in request.changes]


@pytest.mark.promise("tasks.attempts")
def test_of_two_attempts_at_once_the_first_copies_are_in_order(endpoint: Endpoint) -> None:
    """In the middle of one attempt another begins, cut otherwise; they end in turn."""
    with interrupted(task_at(endpoint), PARTITION, in_turn(0, 12), then=in_turn(12, 24)) as end:
        repeated = attempt(task_at(endpoint, batch_records=3), PARTITION, [in_turn(0, 24)])
        assert end().summary == Summary(24, 24)
    assert repeated.summary == Summary(24, 24)
    arrived = [change for request in endpoint.requests for change in request.changes]
    assert len(arrived) == 48
    require_order(arrived)
    assert sorted(place_of(one) for one in once(arrived)) == [(*PARTITION, at) for at in range(24)]


@pytest.mark.promise("tasks.attempts")
def test_a_late_attempt_posts_nothing_that_is_new(endpoint: Endpoint) -> None:
    """Behind the batch after its own: by the same requests, so with the same ids."""
    first = in_turn(0, 10)
    attempt(task_at(endpoint), PARTITION, [first])
    attempt(task_at(endpoint, 1), PARTITION, [in_turn(10, 20)])
    taken = list(endpoint.taken)
    attempt(task_at(endpoint), PARTITION, [first])
    assert endpoint.taken == taken
    assert len(offsets(endpoint)) == 30


@pytest.mark.promise("http.same-ids")
def test_a_worker_does_not_post_again_what_was_answered_of_its_batch(endpoint: Endpoint) -> None:
    def answer(request: Request) -> Answer:
        return TAKEN if request.number < 3 else (503, {}, b"")

    endpoint.answer = answer
    task, piece = task_at(endpoint, lanes=1), in_turn(0, 10)
    with pytest.raises(ServiceError):
        task.write(PARTITION, [piece])
    endpoint.answer = lambda _: TAKEN
    refused = len(endpoint.requests)
    assert task.write(PARTITION, [piece]).summary == Summary(10, 10)
    assert [change["offset"] for request in endpoint.requests[refused:] for change in request.changes] == [6, 7, 8, 9]


def test_changes_with_images_are_the_drivers(tmp_path: Path) -> None:
    settings = HttpSinkSettings.model_validate({"url": "https://h/", "images": f"sqlite:///{tmp_path / 'images.db'}"})
    with closing(open_sink("there", settings, "t")) as sink:
        assert not sink.capabilities.executors
