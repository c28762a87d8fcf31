"""Why a subscription does not run, and what to do, in words for people."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace_schemas.errors import ServiceError
from tailrace_server.model.subscription import Subscription
from tailrace_spark.job.endings import reason
from tailrace_spark.job.progress import Trouble


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
    action = "start Kafka, or correct kafka.bootstrap.servers, which the worker must reach. Then it goes on by itself"
    return Failure(f"Kafka does not answer: {silence}", action)


def uncopied(subscription: Subscription, complaint: str) -> Failure:
    """Tables whose snapshot was given up, by its `MetaNotes.complaint`."""
    action = f"do what the reason says, then `tailrace reset {subscription.reference} --snapshot`"
    return Failure(f"existing rows are not copied of {complaint}", action)


def _blocked(subscription: Subscription, trouble: Trouble) -> Failure:
    if trouble.what == "snapshot":
        action = (
            "start Cassandra ([cluster]), Kafka or the sink, whichever the reason names. Then it goes on; "
            f"`tailrace alter {subscription.reference} --snapshot never` does without"
        )
        return Failure(f"the snapshot waits: {trouble.words}", action)
    service = f"the sink at {subscription.sink.target}" if trouble.what == "sink" else "Kafka"
    action = f"start {service}, or correct its address, which the worker must reach. The batch then goes on"
    return Failure(f"{trouble.what}: {trouble.words}", action)


def ended(subscription: Subscription, error: Exception) -> Failure:
    """What ended one."""
    again = "The next try comes by itself, and at once with `tailrace resume`"
    if isinstance(error, ServiceError):
        target = subscription.sink.target
        action = f"start the sink at {target} or Kafka, whichever the reason names, or correct its address. {again}"
    else:
        action = f"`tailrace alter {subscription.reference}`, or what the reason says. {again}"
    return Failure(reason(error), action)
