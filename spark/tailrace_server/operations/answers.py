"""Subscriptions as people and programs are shown them: as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from tailrace_schemas.errors import CorruptError
from tailrace_schemas.topics import KafkaPartition
from tailrace_server.meta.subscriptions import audited
from tailrace_server.model.delivery import Delivery, PartitionProgress, total_behind
from tailrace_server.model.subscription import NEVER, RUNNABLE, State, Subscription
from tailrace_spark.snapshot.progress import Snapshots, TableSnapshot, snapshots_from_json, status_row
from tailrace_spark.snapshot.ranges import pairs_of

Answer = dict[str, Any]
Positions = Mapping[KafkaPartition, PartitionProgress]


_FOLLOWED: Final = (State.ACTIVE, State.FAILING, State.PAUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What workers keep of a subscription; `ranges` is how far its snapshots are. `now` is the database's time.

    `lease` is a lease in milliseconds, `workers` how many live, and how many subscriptions they may take up.
    """

    progress: Positions = field(default_factory=dict)
    ranges: str | None = None
    delivery: Delivery = field(default_factory=Delivery)
    now: int = 0
    lease: int = 0
    workers: tuple[int, int] = (0, 0)


def answer_of(subscription: Subscription, kept: Kept) -> Answer:
    """One subscription, with how far its sink is behind."""
    (snapshots, unread), delivery = _snapshots(kept.ranges), kept.delivery
    running = subscription.owner is not None and (subscription.lease_until or 0) >= kept.now
    reason, action = _unclaimed(subscription, kept) or (subscription.reason or unread, subscription.action)
    return {
        "id": subscription.id,
        "table": str(subscription.table),
        "name": subscription.name,
        "reference": subscription.reference,
        "state": str(subscription.state),
        "sink": subscription.sink.type,
        "target": subscription.sink.target,
        "stage": _stage(subscription, snapshots),
        "snapshot": subscription.snapshot,
        "snapshot_percent": _percent(snapshots),
        "behind": total_behind(kept.progress.values()),
        "behind_seconds": _behind_seconds(subscription, kept),
        "written": None if delivery.written is None else time_of(delivery.written),
        "letters": delivery.letters,
        "letters_since": None if delivery.letters_since is None else time_of(delivery.letters_since),
        "owner": subscription.owner if running else None,
        "running": running,
        "reason": reason,
        "action": action,
        "left_out": dict(subscription.left_out),
    }


def details_of(subscription: Subscription, kept: Kept) -> Answer:
    """The same with its settings, and with its progress by Kafka partition and by the tables of its snapshots."""
    return {
        **answer_of(subscription, kept),
        **audited(subscription),
        "attempts": subscription.attempts,
        "created": time_of(subscription.created),
        "revision": subscription.revision,
        "token": subscription.token,
        "lease_until": None if subscription.lease_until is None else time_of(subscription.lease_until),
        "partitions": [
            {"topic": topic, "partition": partition, "next": reached.next, "end": reached.end, "behind": reached.behind}
            for (topic, partition), reached in sorted(kept.progress.items())
        ],
        "snapshots": [_table(snapshot) for snapshot in _snapshots(kept.ranges)[0].tables],
    }


def waits_for_its_table(answer: Answer) -> bool:
    """Whether it runs, and nothing of its tables is published. A reason alone may be of rows that are not copied."""
    return answer["state"] == "active" and answer["running"] and answer["behind"] is None and bool(answer["reason"])


def _unclaimed(subscription: Subscription, record: Kept) -> tuple[str, str] | None:
    """Why nobody runs one that is to run, for longer than a lease by now, and what to do; else None."""
    since = subscription.lease_until or subscription.created
    if subscription.state not in RUNNABLE or record.now - since <= record.lease:
        return None
    living, room = record.workers
    if not living:
        return "no worker runs", "start `tailrace server`"
    if subscription.state is State.FAILING:  # it waits for its next try
        return None
    if not room:
        return f"no worker has a free slot, of {living}", "start another server, or raise server.most_subscriptions"
    return (
        "workers have free slots, and none could claim it: an earlier run still writes, or its claim was refused",
        "their logs say more",
    )


def _behind_seconds(subscription: Subscription, kept: Kept) -> float | None:
    """For how long the topics have had what the sink has not, as far as anybody looked; None where nobody did."""
    complete_to = kept.delivery.complete_to
    if complete_to is None or subscription.state not in _FOLLOWED:
        return None
    return max(0, kept.now - complete_to) / 1000


def _snapshots(ranges: str | None) -> tuple[Snapshots, str]:
    """How far they are, and why that cannot be read, such as where another version wrote it."""
    try:
        return (Snapshots() if ranges is None else snapshots_from_json(ranges)), ""
    except CorruptError as error:
        return Snapshots(), str(error)


def _stage(subscription: Subscription, snapshots: Snapshots) -> str:
    """`snapshot` while its tables are to be read, else `log`; the log is followed meanwhile, but for `only`."""
    outstanding = subscription.snapshot != NEVER and not snapshots.initial
    return "snapshot" if outstanding or snapshots.active else "log"


def _percent(snapshots: Snapshots) -> float | None:
    """Of all tables alike: how large they are nobody knows before they are read."""
    shares = [snapshot.share for snapshot in snapshots.tables]
    return round(100 * sum(shares) / len(shares), 1) if shares else None


def _table(snapshot: TableSnapshot) -> Answer:
    """One table's snapshot; `done` and `reading` are token ranges, [start, end] of (start, end]."""
    reading = () if snapshot.round is None else snapshot.round.tokens
    row = {name: value for name, value in status_row(snapshot).items() if name not in ("origin", "where")}
    return {**row, "done": pairs_of(snapshot.done), "reading": pairs_of(reading)}


def time_of(milliseconds: int) -> str:
    """A time of the meta database, in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
