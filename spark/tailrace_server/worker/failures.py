"""Why a subscription does not run, and what to do, in words for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tailrace_common.unreachable import problem_and_remedy, start_or_fix
from tailrace_schemas.errors import ServiceError
from tailrace_server.model.subscription import Subscription
from tailrace_spark.job.endings import reason
from tailrace_spark.job.progress import Trouble

_WORKER: Final = "The worker must reach it."


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a subscription does not run, and what to do."""

    reason: str
    action: str


def waiting(subscription: Subscription, trouble: Trouble | None, silence: str | None) -> Failure | None:
    """What one that runs waits for: what its batch or snapshot failed of, else a Kafka that says nothing."""
    if trouble is not None:
        return _blocked(subscription, trouble)
    if silence is None:
        return None
    return Failure(f"Kafka does not answer: {silence}", f"{start_or_fix('Kafka', 'kafka.bootstrap.servers')} {_WORKER}")


def uncopied(subscription: Subscription, complaint: str) -> Failure:
    """Tables whose snapshot was given up, by its `MetaNotes.complaint`."""
    action = f"do what the reason says, then `tailrace reset {subscription.reference} --snapshot`"
    return Failure(f"existing rows are not copied of {complaint}", action)


def _blocked(subscription: Subscription, trouble: Trouble) -> Failure:
    if trouble.what == "snapshot":
        remedy = trouble.remedy or start_or_fix("Cassandra ([cluster]), Kafka or the sink")
        without = f"`tailrace alter {subscription.reference} --snapshot never` does without."
        return Failure(f"the snapshot waits: {trouble.words}", f"{remedy} {_WORKER} {without}")
    service = f"the target {subscription.sink.target}" if trouble.what == "sink" else "Kafka"
    return Failure(f"{trouble.what}: {trouble.words}", f"{trouble.remedy or start_or_fix(service)} {_WORKER}")


def ended(subscription: Subscription, error: Exception) -> Failure:
    """What ended one."""
    again = f"`tailrace resume {subscription.reference}` tries again at once."
    problem, remedy = problem_and_remedy(error)
    if remedy:
        return Failure(problem, f"{remedy} {_WORKER} {again}")
    if isinstance(error, ServiceError):
        return Failure(problem, f"{start_or_fix(f'the target {subscription.sink.target}, or Kafka')} {again}")
    return Failure(reason(error), f"`tailrace alter {subscription.reference}`, or what the reason says. {again}")
