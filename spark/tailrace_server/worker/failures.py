"""Why a subscription does not run, or has no topic, or reads only some, and what to do, in words for people."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from tailrace_common.settings import Settings
from tailrace_common.topics import Unpublished, why_unpublished
from tailrace_common.unreachable import problem_and_remedy, start_or_fix
from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.errors import ServiceError, SettingsError, TailraceError
from tailrace_server.model.subscription import Subscription
from tailrace_server.operations.checks import Requirement
from tailrace_spark.job.endings import reason
from tailrace_spark.job.progress import Trouble
from tailrace_spark.job.snapshot_context import stream_settings
from tailrace_spark.shaping import newest
from tailrace_spark.snapshot.session import ClusterView

_WORKER: Final = "The worker must reach it."
_AGAIN_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a subscription does not run, and what to do; `idle`: nothing that it could read is published."""

    reason: str
    action: str
    idle: bool = field(default=False, compare=False)


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


@dataclass(frozen=True, slots=True)
class Unfit:
    """Reasons by table, and the topics that are not read: of these tables, and of those that are no tables of it."""

    reasons: Mapping[str, str] = field(default_factory=dict)
    topics: frozenset[str] = frozenset()

    def without(self, pattern: str) -> str:
        """A regular expression of topics without these; in words that Java and Python share."""
        if not self.topics:
            return pattern
        return rf"(?!(?:{'|'.join(re.escape(topic) for topic in sorted(self.topics))})$){pattern}"


def unfit_tables(required: Sequence[Requirement], entries: Iterable[SchemaEntry], pattern: str, name: str) -> Unfit:
    """Of the tables whose topics fit the pattern, those that do not fit what is required.

    Those whose own names do not fit `name` are no tables of it at all, and have no reason: names of topics are cut.
    Raises SettingsError where none fits: then there is nothing to run.
    """
    matching = [entry for entry in entries if re.fullmatch(pattern, entry.topic)]
    read = [entry for entry in matching if fnmatchcase(str(entry.table), name)]
    foreign = frozenset(entry.topic for entry in matching) - {entry.topic for entry in read}
    tables = newest(read)
    reasons: dict[str, str] = {}
    for _, table in tables:
        try:
            for require in required:
                require(table)
        except SettingsError as error:
            reasons[str(table)] = str(error)
    if reasons and len(reasons) == len(tables):
        raise SettingsError("\n".join(reasons.values()))
    return Unfit(reasons, foreign | {entry.topic for entry in read if str(entry.table) in reasons})


class UnpublishedWatch(threading.Thread):
    """Looks in a thread of its own, now and every 30 seconds, until it is told to stop or there are topics."""

    def __init__(self, published: Callable[[], bool], ask: Callable[[], Unpublished], stop: threading.Event) -> None:
        """`published` says whether there are topics by now; it may raise ServiceError."""
        super().__init__(name="unpublished tables", daemon=True)
        self._published = published
        self._ask = ask
        self._ending = stop
        self.why: Unpublished | None = None
        self.start()

    def run(self) -> None:
        """Ask, until there are topics or it is told to stop."""
        while True:
            try:
                if self._published():
                    self.why = None
                    return
                self.why = self._ask()
            except ServiceError as error:
                self.why = Unpublished(f"Kafka does not answer: {error}", "start Kafka, or correct its address")
            if self._ending.wait(_AGAIN_SECONDS):
                return


def asked_of_cassandra(settings: Settings, pattern: str) -> Unpublished:
    """Why nothing of these tables is published, as Cassandra at [cluster] has them; it raises nothing."""
    try:
        with closing(ClusterView(stream_settings(settings))) as cluster:
            tables = {".".join(name): cdc for name, cdc in cluster.cdc_by_name().items()}
    except TailraceError as error:
        return Unpublished(
            f"nothing of {pattern} is published yet, and why cannot be asked: {error}",
            f"is there such a table, with cdc = true? If not: ALTER TABLE {pattern} WITH cdc = true",
        )
    return why_unpublished(pattern, tables)
