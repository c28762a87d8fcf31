"""Publishing a proposal, and learning whether it won."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import Final, Protocol, TypeVar
from uuid import UUID

from tailrace.topology.proposals import ONE_STREAM, RING_DELAY_MS, EntrySettings, operating_from, propose
from tailrace_common.generations import GenerationReader
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.generations import Proposal, PublishedGeneration, commit_at, encode_proposal
from tailrace_schemas.ring import Ring

_LOG: Final = logging.getLogger("tailrace.topology")

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

    That is counted from the time at which the broker has the description, by the broker's clock: by this clock it
    is judged whether the commit record comes in time, and agents' own may differ. `late`: how many commit records
    of ours came too late in a row.
    """
    *description, commit = encode_proposal(proposal)
    now_ms = 0
    for record in description:
        now_ms = yield record
    timestamp = operating_from(proposal.predecessor, now_ms, ring_delay_ms, late=late)
    yield commit_at(commit, timestamp)
    return timestamp


def publish(
    proposal: Proposal, log: RecordLog, reader: GenerationReader, ring_delay_ms: int = RING_DELAY_MS
) -> PublishedGeneration | None:
    """Append a proposal and read on to the end: the latest valid generation, ours or another's; None: none is.

    Two steps, description first, commit record last: whoever fails in between
    leaves chunks that nobody heeds. Raises ServiceError.
    """
    run_appending(announcing(proposal, ring_delay_ms), log)
    reader.refresh()
    latest = reader.latest
    if latest is not None:
        whose = "ours" if latest.uuid == proposal.uuid else "another proposer's"
        _LOG.info("generation %d is valid: %s", latest.timestamp, whose)
    return latest


def ensure_first(
    ring: Callable[[], Ring],
    log: RecordLog,
    reader: GenerationReader,
    *,
    new_uuid: Callable[[], UUID],
    entries: EntrySettings = ONE_STREAM,
) -> PublishedGeneration:
    """The latest valid generation; where there is none, the first is made from the live ring.

    Any number of agents may do this at once and any of them may die meanwhile: the topic's order lets exactly one
    first generation be valid, and all return that one. `ring` is asked only when it is needed. Raises ServiceError,
    and RingError while a node joins, leaves or moves: try again later.
    """
    reader.refresh()
    latest = reader.latest
    if latest is None:
        latest = publish(propose(ring(), None, uuid=new_uuid(), entries=entries), log, reader)
    if latest is None:
        raise ServiceError(
            "the generations topic ends before the records that Kafka acknowledged: was it deleted and made anew?"
            " start the agent again"
        )
    return latest
