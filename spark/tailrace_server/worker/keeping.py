"""Keeps how far one claim is in the meta database, and with it what people see: lag, dead letters, a silent Kafka."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final

from tailrace_schemas.errors import CorruptError, ServiceError, SettingsError
from tailrace_schemas.topics import KafkaPartition
from tailrace_server.meta.leases import Claim, Leases
from tailrace_server.model.delivery import Completeness, News, PartitionProgress
from tailrace_server.model.subscription import Topics
from tailrace_spark.job.progress import Ends
from tailrace_spark.job.sharing import behind
from tailrace_spark.snapshot.progress import Request, Snapshots, State, snapshots_from_json

log = logging.getLogger("tailrace_server")

# Kafka may be slow for so long before it is said: a broker that restarts takes some seconds.
_PATIENCE_SECONDS: Final = 15.0
_KEPT_SECONDS: Final = 1.0
_UNREAD = (State.DROPPED, State.REFUSED)


class Keeper:
    """Of one claim, while it is run. Any thread may call."""

    def __init__(
        self,
        claim: Claim,
        leases: Leases,
        ends: Ends,
        letters: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ends` says where partitions end, `letters` how many records this run has set aside so far."""
        self._claim = claim
        self._leases = leases
        self._ends = ends
        self._letters = letters
        self._clock = clock
        self._saving = threading.Lock()
        self._completeness = Completeness()
        self._letters_kept = 0
        self._unkept = False
        self._silent: tuple[float, str] | None = None
        self._topics = claim.subscription.topics
        self.next: dict[KafkaPartition, int] = {}
        """The offsets at which the next batch begins."""
        self.behind = 0
        self.wrote_once = False

    def begin(self, offsets: Mapping[KafkaPartition, int], topics: Topics) -> None:
        """Begin at these, which are kept before anything is read. Raises LostLeaseError, ServiceError."""
        self.next, self._topics = dict(offsets), topics
        self._save()

    def wrote(self, end: Mapping[KafkaPartition, int], topics: Topics) -> None:
        """A batch of these topics is in the sink. Where the meta database does not answer, a later batch or the worker
        keeps that."""
        self.next = dict(end)
        # Of a topic that is gone the id is needed still, to know another one of its name.
        self._topics = replace(self._topics, ids={**self._topics.ids, **topics.ids}, readings=topics.readings)
        self.wrote_once = self._unkept = True
        try:
            self._save()
        except ServiceError as error:
            log.warning("%s; what is written is kept with the next batch, else written again", error)

    def refresh(self) -> None:
        """Keep where the topics end now. Raises LostLeaseError, ServiceError."""
        if self.next:
            self._save()

    @property
    def silence(self) -> str | None:
        """The words of a Kafka that has not answered for a while; None while it answers."""
        silent = self._silent
        return silent[1] if silent is not None and self._clock() - silent[0] >= _PATIENCE_SECONDS else None

    def _save(self) -> None:
        with self._saving:
            offsets, topics, letters, wrote = dict(self.next), self._topics, self._letters(), self._unkept
            asked = self._clock()
            ends = self._asked_ends(offsets, asked)
            self.behind = behind(offsets, ends)
            progress = {
                partition: PartitionProgress(offset, None if (end := ends.get(partition)) is None else max(offset, end))
                for partition, offset in offsets.items()
            }
            complete = self._completeness.at(asked, offsets, ends)
            age = None if complete is None else self._clock() - complete
            news = News(wrote=wrote, letters=letters - self._letters_kept, complete_seconds=age)
            self._leases.save(self._claim, progress, news, topics)
            self._letters_kept = letters
            self._unkept = self._unkept and self.next != offsets

    def _asked_ends(self, offsets: Mapping[KafkaPartition, int], asked: float) -> dict[KafkaPartition, int]:
        try:
            ends = dict(self._ends(offsets))
        except ServiceError as error:
            self._silent = (asked if self._silent is None else self._silent[0]), str(error)
            return {}
        self._silent = None
        return ends


class SharedEnds:
    """Answers by what was asked for within the last second; it is for people, who see lag by it. Any thread may ask."""

    def __init__(self, ask: Ends, clock: Callable[[], float]) -> None:
        """`clock` is monotonic, in seconds."""
        self._ask = ask
        self._clock = clock
        self._asking = threading.Lock()
        self._failed: tuple[float, str] | None = None
        self._known: dict[KafkaPartition, tuple[float, int]] = {}

    def of(self, partitions: Collection[KafkaPartition]) -> dict[KafkaPartition, int]:
        """The ends of those that are there. Raises ServiceError, for a second without asking again."""
        with self._asking:
            since = self._clock() - _KEPT_SECONDS
            if any(time < since for time, _ in map(self._answer, partitions)):
                self._refresh(partitions, since)
            answers = {partition: self._answer(partition) for partition in partitions}
            return {partition: end for partition, (time, end) in answers.items() if time >= since}

    def _answer(self, partition: KafkaPartition) -> tuple[float, int]:
        return self._known.get(partition, (-math.inf, 0))

    def _refresh(self, partitions: Collection[KafkaPartition], since: float) -> None:
        if self._failed is not None and self._failed[0] >= since:
            raise ServiceError(self._failed[1])
        try:
            ends = self._ask(partitions)
        except ServiceError as error:  # a broker that is down takes its time, and each subscription asks
            self._failed = self._clock(), str(error)
            raise
        now = self._clock()
        self._known.update({partition: (now, end) for partition, end in ends.items()})


class MetaNotes:
    """As `tailrace_spark.job.snapshot_notes.Notes` says, for one claim: one that is lost writes nothing.

    Nothing is asked of a stream here: `tailrace reset --snapshot` changes the progress itself.
    """

    def __init__(self, leases: Leases, claim: Claim) -> None:
        self._leases = leases
        self._claim = claim
        self.last = Snapshots()
        """What was read or written last."""

    def read(self) -> Snapshots:
        """As Notes says. Raises ServiceError and LostLeaseError too."""
        ranges = self._leases.snapshots(self._claim)
        if ranges is not None:
            try:
                self.last = snapshots_from_json(ranges)
            except CorruptError as error:
                reference = self._claim.subscription.reference
                raise SettingsError(
                    f"subscription {reference}: {error}. Install the version that wrote it, or begin again by "
                    f"`tailrace reset {reference} --snapshot`"
                ) from error
        return self.last

    def write(self, value: Snapshots) -> None:
        """As Notes says."""
        self._leases.save_snapshots(self._claim, value.to_json())
        self.last = value

    def requested(self) -> list[tuple[str, Request]]:
        """None, ever."""
        return []

    def take(self, name: str) -> None:
        """There is nothing to take."""

    @property
    def complaint(self) -> str:
        """Of tables that could not be read: which, and why; empty without any."""
        return "; ".join(f"{table.table}: {table.reason}" for table in self.last.tables if table.state in _UNREAD)
