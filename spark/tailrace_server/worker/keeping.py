"""Keeps how far one claim is in the meta database, and with it what people see: lag, dead letters, a silent Kafka."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from tailrace_schemas.errors import ServiceError
from tailrace_schemas.topics import KafkaPartition
from tailrace_server.meta.leases import Claim, Leases
from tailrace_server.model.delivery import Completeness, News
from tailrace_server.model.progress import PartitionProgress
from tailrace_server.model.subscription import Topics
from tailrace_spark.job.lag import Ends
from tailrace_spark.job.sharing import behind

log = logging.getLogger("tailrace_server")

# Kafka may be slow for so long before it is said: a broker that restarts takes some seconds.
_PATIENCE_SECONDS: Final = 15.0


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

    def wrote(self, end: Mapping[KafkaPartition, int], topics: Topics | None = None) -> None:
        """A batch is in the sink, of these topics if they are others. Where the meta database does not answer, a later
        batch or the worker keeps it."""
        self.next = dict(end)
        if topics is not None:  # of a topic that is gone the id is needed still, to know another one of its name
            self._topics = replace(topics, ids={**self._topics.ids, **topics.ids})
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
