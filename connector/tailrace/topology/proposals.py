"""What to propose for a ring: its generation, and from when it operates; and publishing that, record by record."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar
from uuid import UUID

from tailrace_schemas.generation_records import Proposal, commit_at, encode_proposal
from tailrace_schemas.ring import Ring, RingError, ring_seed
from tailrace_schemas.streams import LEEWAY_MS, build_generation

RING_DELAY_MS: Final = 30_000
"""Cassandra's own: how long a change of the ring takes to be known everywhere."""

_LEAST_ROOM_MS: Final = 1_000
_MOST_DOUBLINGS: Final = 16
R = TypeVar("R")
Appending = Generator[tuple[bytes, bytes], int, R]
"""Yields records to append, key and value, and is sent the time at which each of them was, in milliseconds."""


@dataclass(frozen=True, slots=True)
class EntrySettings:
    """How the entries of a generation are made: Cassandra has no shards, so one stream per vnode is usual."""

    streams_per_entry: int = 1
    ignore_msb: int = 0


ONE_STREAM: Final = EntrySettings()


def propose(ring: Ring, predecessor: int | None, *, uuid: UUID, entries: EntrySettings = ONE_STREAM) -> Proposal:
    """The proposal for a ring after the valid generation with timestamp `predecessor`; None: the cluster's first.

    Equal rings and predecessors give equal streams. Its timestamp is provisional: it is settled when Kafka has the
    description (publication.announcing). Raises RingError when a node is joining, leaving or moving: a ring is
    proposed only when it has settled (contracts.md 5).
    """
    for node in ring.nodes:
        if not node.normal:
            raise RingError(f"node {node.host} is not NORMAL yet: a generation is proposed when all nodes are")
    generation = build_generation(
        ring,
        entries.streams_per_entry,
        entries.ignore_msb,
        timestamp=0 if predecessor is None else predecessor + 1,
        seed=ring_seed(ring, predecessor),
    )
    return Proposal(uuid=uuid, predecessor=predecessor, ring=ring, generation=generation)


def operating_from(predecessor: int | None, now_ms: int, ring_delay_ms: int = RING_DELAY_MS, *, late: int = 0) -> int:
    """When a generation announced now shall begin to operate, in milliseconds.

    The first one at once, since there is nothing to change over from. Others two ring delays and the leeway ahead, so
    that every reader knows of them in time (ScyllaDB: new_generation_timestamp), and after their predecessor. The
    commit record has those two delays to arrive, and at least a second, also where the ring delay is 0. It has twice
    as long after each that came too `late`.
    """
    if predecessor is None:
        return now_ms
    room = max(2 * ring_delay_ms, _LEAST_ROOM_MS << min(late, _MOST_DOUBLINGS))
    return max(now_ms + room + LEEWAY_MS, predecessor + 1)


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
