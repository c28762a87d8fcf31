"""What a subscription that runs waits for, in words."""

from __future__ import annotations

from tailrace_common.unreachable import problem_and_remedy, unreachable
from tailrace_server.worker.failures import Failure, ended, uncopied, waiting
from tailrace_spark.job.progress import Trouble
from tests.unit.server.requests import subscription

SINK = Trouble("sink", "connection refused", "", 0.0)
SILENCE = "Kafka: asking where partitions end: timed out"


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
