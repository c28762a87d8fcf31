"""What a store of dead letters can do: one letter for each record of Kafka, listed by its place there."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from tailrace_spark.batch.delivery import DeadLetter, RecordId, RecordKey

log = logging.getLogger("tailrace_spark")


class DeadLetterReader(Protocol):
    """Dead letters that can be listed; what adds and removes them is the commit of a batch. Raises ServiceError."""

    def list(self, after: RecordId | None, limit: int) -> Sequence[DeadLetter]:
        """At most `limit` of those behind `after`, by topic, partition and offset; None: from the first one on."""


class DeadLetterStore(DeadLetterReader, Protocol):
    """Dead letters that are put and removed by themselves. All raise ServiceError."""

    def put(self, letters: Sequence[DeadLetter]) -> None:
        """Keep them. A record has one dead letter: putting it again does not add a second one."""

    def remove(self, letters: Sequence[DeadLetter]) -> None:
        """Remove those of the same records; one that is not there is no error."""


def accepted(letters: Iterable[DeadLetter], set_aside: Iterable[DeadLetter]) -> list[DeadLetter]:
    """Those of the replayed `letters` that the sink took in: all whose records it did not set aside again."""
    again = {letter.record_id.key for letter in set_aside}
    return [letter for letter in letters if letter.record_id.key not in again]


def log_put(letters: Sequence[DeadLetter], store: str) -> None:
    """Warn of records that a sink has set aside: how many, where they are, and the first one's place and reason."""
    if letters:
        topic, partition, offset = letters[0].record_id.key
        log.warning(
            "%d records are dead letters in %s, all others go on. After the cause is fixed: tailrace sink-letters "
            "replay, or of a subscription: tailrace subscriptions NAME --letters --replay. "
            "First: %s, partition %d, offset %d: %s",
            len(letters), store, topic, partition, offset, letters[0].reason,
        )  # fmt: skip


def page(keys: Iterable[RecordKey], after: RecordId | None, limit: int) -> list[RecordKey]:
    """The first `limit` keys behind `after`, in their order; None: of all."""
    return sorted(key for key in keys if after is None or key > after.key)[:limit]
