"""What a subscription that runs waits for, in words."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tailrace_common.settings import settings_from
from tailrace_common.topics import Unpublished, why_unpublished
from tailrace_common.unreachable import problem_and_remedy, unreachable
from tailrace_schemas.errors import ServiceError
from tailrace_server.meta.leases import Claim
from tailrace_server.worker.failures import Failure, UnpublishedWatch, asked_of_cassandra, ended, uncopied, waiting
from tailrace_server.worker.run import StreamRun
from tailrace_spark.job.progress import Trouble
from tests.unit.server.requests import subscription

SINK = Trouble("sink", "connection refused", "", 0.0)
SILENCE = "Kafka: asking where partitions end: timed out"
NO_CDC = Unpublished("shop.plain has no cdc", "ALTER TABLE shop.plain WITH cdc = true")
TABLES = {"shop.plain": False, "shop.other": False, "shop.orders": True, "old.plain": False}


def test_a_kafka_that_hangs_is_a_failure_with_a_reason() -> None:
    assert waiting(subscription(), None, None) is None
    failure = waiting(subscription(), None, SILENCE)
    assert failure == Failure(
        f"Kafka does not answer: {SILENCE}",
        "Start Kafka or fix kafka.bootstrap.servers. The worker must reach it.",
    )


def test_tables_that_are_not_copied_are_named_with_what_begins_them_again() -> None:
    failure = uncopied(subscription(), "shop.people: Cassandra masks shop.people.name for this role")
    assert failure.reason.startswith("existing rows are not copied of shop.people: Cassandra masks")
    assert f"`tailrace reset {subscription().reference} --snapshot`" in failure.action


def test_what_its_batch_failed_of_comes_first() -> None:
    failure = waiting(subscription(), SINK, SILENCE)
    assert failure is not None
    assert failure.reason == "sink: connection refused"
    assert failure.action.startswith("Start the target dwh or fix its address.")


def test_what_the_error_knows_comes_before_the_general_words() -> None:
    error = unreachable("postgresql://host/d", "connection refused", "the database")
    assert error is not None
    problem, remedy = problem_and_remedy(error)
    assert waiting(subscription(), Trouble("sink", problem, "", 0.0, remedy), None) == Failure(
        "sink: Cannot connect to postgresql://host/d (connection refused)",
        "Start the database or fix its address. The worker must reach it.",
    )
    failure = ended(subscription(), error)
    assert failure.reason == problem
    assert failure.action.startswith(f"{remedy} The worker must reach it. `tailrace resume ")


@pytest.mark.parametrize(
    ("pattern", "reason", "action"),
    [
        ("shop.plain", NO_CDC.reason, NO_CDC.action),
        ("shop.plane", "there is no such table: shop.plane", "did you mean shop.plain?"),
        ("x.*", "there is no such table: x.*", "make it WITH cdc = true, or correct the name"),
        ("*.plain", "old.plain, shop.plain have no cdc",
         "ALTER TABLE old.plain WITH cdc = true; ALTER TABLE shop.plain WITH cdc = true"),
        ("shop.*", "no agent has published anything of shop.orders yet",
         "start an agent beside each node; `tailrace check` there says whether tables.include selects the table"),
    ],
)  # fmt: skip
def test_the_reason_is_what_cassandra_has(pattern: str, reason: str, action: str) -> None:
    assert why_unpublished(pattern, TABLES) == Unpublished(reason, action)


def test_of_many_tables_a_few_are_named() -> None:
    why = why_unpublished("shop.*", {f"shop.t{number}": False for number in range(9)})
    assert why.reason == "shop.t0, shop.t1, shop.t2 and 6 more have no cdc"
    assert why.action.count("ALTER TABLE") == 3


def test_it_is_said_while_there_is_no_topic() -> None:
    stop = threading.Event()
    watch = UnpublishedWatch(lambda: False, lambda: NO_CDC, stop)
    stop.set()
    watch.join(60)
    assert watch.why == NO_CDC


def test_a_kafka_that_does_not_answer_is_said() -> None:
    def published() -> bool:
        raise ServiceError("timed out")

    stop = threading.Event()
    watch = UnpublishedWatch(published, lambda: NO_CDC, stop)
    stop.set()
    watch.join(60)
    assert watch.why == Unpublished("Kafka does not answer: timed out", "start Kafka, or correct its address")


def test_it_looks_again_until_there_is_one_whatever_kafka_does() -> None:
    class Passing(threading.Event):
        """No time passes."""

        def wait(self, timeout: float | None = None) -> bool:
            assert timeout
            return False

    answers: Iterator[bool | ServiceError] = iter([False, ServiceError("Kafka does not answer"), False, True])
    seen: list[Unpublished | None] = []

    def published() -> bool:
        answer = next(answers)
        if isinstance(answer, ServiceError):
            raise answer
        return answer

    def ask() -> Unpublished:
        seen.append(NO_CDC)
        return NO_CDC

    watch = UnpublishedWatch(published, ask, Passing())
    watch.join(60)
    assert (watch.why, seen) == (None, [NO_CDC, NO_CDC])


@pytest.mark.slow
def test_a_cassandra_that_does_not_answer_is_said_and_the_statement_too() -> None:
    settings = settings_from({"cluster": {"contact_points": ["127.0.0.1"], "port": 1}}, "the test")
    why = asked_of_cassandra(settings, "shop.plain")
    assert "nothing of shop.plain is published yet, and why cannot be asked" in why.reason
    assert "ALTER TABLE shop.plain WITH cdc = true" in why.action


class Fails(StreamRun):
    """Waits for its table, and then its stream fails."""

    def _follow(self) -> None:
        self._unpublished = UnpublishedWatch(lambda: False, lambda: NO_CDC, self._stop)
        raise ServiceError("down")


def test_nothing_of_a_run_that_has_failed_asks_on() -> None:
    """Each attempt would leave a thread behind that asks Kafka and Cassandra twice a minute."""
    unasked: Any = None
    run = Fails(Claim(subscription(), 1), settings_from({}, "test"), unasked, unasked, unasked, unasked)
    run.wait(10)
    assert run.failure is not None
    assert run._unpublished is not None
    run._unpublished.join(10)
    assert not run._unpublished.is_alive()
