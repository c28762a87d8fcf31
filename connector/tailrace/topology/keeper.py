"""One agent's share in keeping generations: looks at the ring, reads the topic, proposes when it is due."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar
from uuid import UUID

from tailrace.ops.health import HealthBoard, RingHealth, RingState
from tailrace.topology.ring_watch import USUAL, Delays, NextLook, RingWatch, ring_digest
from tailrace_common.backoff import Backoff, Waits
from tailrace_common.closing import Turns
from tailrace_common.topics import GenerationReader
from tailrace_schemas.errors import ServiceError, TailraceError
from tailrace_schemas.generation_records import (
    Proposal,
    PublishedGeneration,
    commit_at,
    encode_expired,
    encode_proposal,
)
from tailrace_schemas.ring import Ring, RingError, ring_seed
from tailrace_schemas.streams import LEEWAY_MS, build_generation, keep_from

RING_DELAY_MS: Final = 30_000
"""Cassandra's own: how long a change of the ring takes to be known everywhere."""

_LEAST_ROOM_MS: Final = 1_000
_MOST_DOUBLINGS: Final = 16
R = TypeVar("R")
Appending = Generator[tuple[bytes, bytes], int, R]
"""Yields records to append, key and value, and is sent the time at which each of them was, in milliseconds."""
_LOG: Final = logging.getLogger("tailrace.topology")
_DISPUTED: Final = 2
_AGAIN_SECONDS: Final = 0.2
_EXPIRE_SECONDS: Final = 3600.0
_WAITS: Final = Waits(1.0, 10.0)


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


@dataclass(frozen=True, slots=True)
class Retention:
    """How long after its end a generation is kept: `least_ms`, and while a topic keeps changes of its time.

    `topics_ms` asks how long each table's topic keeps changes, in milliseconds, None for ever; it raises ServiceError.
    `now_ms` is the time of day, by our clock. That decides only when to announce that some may go; whether it holds is
    judged by the broker's.
    """

    least_ms: int
    topics_ms: Callable[[], Iterable[int | None]]
    now_ms: Callable[[], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a keeper needs. `ring` raises ServiceError or RingError; `clock` is monotonic, in seconds.

    `retention` None: generations are kept for ever.
    """

    host: str
    ring: Callable[[], Ring]
    clock: Callable[[], float]
    new_uuid: Callable[[], UUID]
    health: HealthBoard
    entries: EntrySettings = ONE_STREAM
    delays: Delays = USUAL
    retention: Retention | None = None


class RingKeeper:
    """Makes one step after the other, in one thread; what it knows of the topic comes from the reader of each step."""

    def __init__(self, parts: Surroundings) -> None:
        self._parts = parts
        self._watch = RingWatch(parts.host, parts.delays)
        self._ring: Ring | None = None
        self._digests: dict[int, int] = {}
        self._late = 0
        self._expire_after = 0.0
        self._said: tuple[RingState, int | None] | None = None

    def stir(self) -> None:
        """An event says that the ring changed."""
        self._watch.stir(self._parts.clock())

    def step(self, reader: GenerationReader) -> Appending[float]:
        """Look, read, judge, and propose if it is due; after how many seconds to make the next step.

        Raises ServiceError when Kafka cannot be read; a ring that cannot be read is reported and waited for.
        """
        self._look()
        published = {generation.timestamp: generation for generation in reader.refresh()}
        look = self._judge(published)
        self._tell(look, reader.latest)
        if look.state is RingState.COVERED:
            yield from self._expire(reader)
        if look.state is not RingState.DUE or self._ring is None:
            return look.seconds
        yield from self._propose(self._ring, reader)
        look = self._judge({generation.timestamp: generation for generation in reader.published})
        self._tell(look, reader.latest)
        waits = Waits(_AGAIN_SECONDS, self._parts.delays.poll)
        return max(look.seconds, waits.after(self._late) if self._late else 0.0)

    def _look(self) -> None:
        parts = self._parts
        began = parts.clock()
        try:
            self._ring = parts.ring()
        except (ServiceError, RingError) as error:
            self._watch.miss()
            parts.health.count(ring_failures=1)
            if parts.health.degrade(
                "ring", f"the ring cannot be read, so no generation is proposed until it can: {error}"
            ):
                _LOG.warning("the ring cannot be read, so no generation is proposed until it can: %s", error)
            return
        self._watch.see(self._ring, began, parts.clock())

    def _judge(self, published: Mapping[int, PublishedGeneration]) -> NextLook:
        def digest_of(timestamp: int) -> int:
            digest = self._digests.get(timestamp)
            if digest is None:
                digest = self._digests[timestamp] = ring_digest(published[timestamp].unpack().ring)
            return digest

        return self._watch.judge(tuple(published), digest_of, self._parts.clock())

    def _propose(self, ring: Ring, reader: GenerationReader) -> Appending[None]:
        previous, parts = reader.latest, self._parts
        predecessor = None if previous is None else previous.timestamp
        proposal = propose(ring, predecessor, uuid=parts.new_uuid(), entries=parts.entries)
        parts.health.count(proposals=1)
        timestamp = yield from announcing(proposal, round(parts.delays.ring * 1000), late=self._late)
        reader.refresh()
        latest = reader.latest
        if latest is previous or latest is None:
            self._late += 1
            parts.health.count(proposals_late=1)
            _LOG.warning("generation %d was announced too late and is not valid; proposing another one", timestamp)
            return
        self._late = 0
        won = latest.uuid == proposal.uuid
        parts.health.count(**{"proposals_won" if won else "proposals_lost": 1})
        proposer = "ours" if won else "another agent's"
        _LOG.info("generation %d (%s) is valid for a ring of %d nodes", latest.timestamp, proposer, len(ring.nodes))

    def _expire(self, reader: GenerationReader) -> Appending[None]:
        """Let old generations go; looked at again after an hour, when our clock was ahead, or a topic keeps changes."""
        retention, now = self._parts.retention, self._parts.clock()
        if retention is None or now < self._expire_after:
            return
        timestamps, now_ms = [generation.timestamp for generation in reader.published], retention.now_ms()
        if keep_from(timestamps, now_ms, [retention.least_ms]) is None:
            return  # whatever the topics keep
        self._expire_after = now + _EXPIRE_SECONDS
        try:
            retentions_ms = [retention.least_ms, *retention.topics_ms()]
        except ServiceError as error:
            _LOG.warning("no generation is removed: the retention of the tables' topics is unknown: %s", error)
            return
        oldest = keep_from(timestamps, now_ms, retentions_ms)
        if oldest is not None:
            yield encode_expired(oldest, max(filter(None, retentions_ms)))
            reader.refresh()

    def _tell(self, look: NextLook, latest: PublishedGeneration | None) -> None:
        health = self._parts.health
        timestamp = None if latest is None else latest.timestamp
        nodes = 0 if self._ring is None else len(self._ring.nodes)
        health.ring(RingHealth(generation=timestamp, state=look.state, waits_for=look.words, nodes=nodes))
        if (look.state, timestamp) != self._said:
            self._said = look.state, timestamp
            _LOG.info("ring: %s", health.now.ring)
        if look.disputed >= _DISPUTED:
            words = (
                f"the ring that this node sees was replaced by another {look.disputed} times of late, each with a"
                " generation: do all nodes agree? compare `nodetool ring` on each; it is proposed ever more seldom"
            )
            if health.degrade("ring", words):
                _LOG.warning("%s", words)
        elif look.state is not RingState.UNKNOWN:
            health.recover("ring")


class KeeperThread(Turns[GenerationReader]):
    """The keeper of generations in a thread of its own, beside the run loop, which it never holds up.

    A failure is reported in health and tried again, ever less often.
    After a failure the topic is read again from its start: whatever the last reader had taken, nothing is skipped.
    """

    def __init__(
        self, keeper: RingKeeper, open_reader: Callable[[], GenerationReader], log: RecordLog, health: HealthBoard
    ) -> None:
        super().__init__("generations", open_reader)
        self._keeper = keeper
        self._log = log
        self._health = health
        self._stirred = False
        self._backoff = Backoff(_WAITS)
        self.begin()

    def stir(self, changed: bool = True) -> None:
        """An event: the ring changed, or (False) may look different. From any thread; never waits."""
        if changed:
            self._stirred = True
        self.wake()

    def _turn(self, opened: GenerationReader) -> float:
        if self._stirred:
            self._stirred = False
            self._keeper.stir()
        seconds = run_appending(self._keeper.step(opened), self._log)
        self._backoff.reset()
        self._health.recover("generations")
        return seconds

    def _failed(self, error: Exception) -> float:
        self._health.count(generation_failures=1)
        is_ours = isinstance(error, TailraceError)
        words = f"{error if is_ours else repr(error)}; no new generation meanwhile, changes go on"
        if self._health.degrade("generations", words):
            _LOG.error("generations: %s", words, exc_info=None if is_ours else error)
        return self._backoff.next()
