"""Publishing a proposal, record by record."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol, TypeVar

from tailrace.topology.proposals import RING_DELAY_MS, operating_from
from tailrace_schemas.generation_records import Proposal, commit_at, encode_proposal

R = TypeVar("R")
Appending = Generator[tuple[bytes, bytes], int, R]
"""Yields records to append, key and value, and is sent the time at which each of them was, in milliseconds."""


class RecordLog(Protocol):
    """A topic of one partition that is only ever appended to."""

    def append(self, key: bytes, value: bytes) -> int:
        """Append one record; it is in the topic, once, when this returns.

        When it was appended, in milliseconds, by the broker's clock. Raises ServiceError.
        """


def run_appending(steps: Appending[R], log: RecordLog) -> R:
    """Append what `steps` yields, one after the other; its result. Raises what it raises, and ServiceError."""
    try:
        record = next(steps)
        while True:
            record = steps.send(log.append(*record))
    except StopIteration as done:
        result: R = done.value
        return result


def announcing(proposal: Proposal, ring_delay_ms: int = RING_DELAY_MS, *, late: int = 0) -> Appending[int]:
    """The records of a proposal, description first, commit record last; the timestamp that it commits.

    That is counted from the time at which the broker has the description, by the broker's clock. The same clock judges
    whether the commit record comes in time; agents' own may differ. `late`: how many commit records of ours came too
    late in a row.
    """
    *description, commit = encode_proposal(proposal)
    now_ms = 0
    for record in description:
        now_ms = yield record
    timestamp = operating_from(proposal.predecessor, now_ms, ring_delay_ms, late=late)
    yield commit_at(commit, timestamp)
    return timestamp
