"""Where partitions end, asked for once for all subscriptions of a worker."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection
from typing import Final

from tailrace_schemas.errors import ServiceError
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.job.lag import Ends

_KEPT_SECONDS: Final = 1.0


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
