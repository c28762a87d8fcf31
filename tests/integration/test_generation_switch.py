"""Generations that come late, come by halves and switch in the middle of a load: every change keeps its own stream."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.local import LocalKafka
from tailrace_common.settings import Settings
from tailrace_schemas.change import Change
from tailrace_schemas.streams import Generation
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import CommitMessage, MicroBatch, Piece, Summary
from tailrace_spark.job.progress import Progress
from tailrace_spark.job.stream import Stream
from tailrace_spark.sinks.protocol import BatchWrite, Capabilities, Needed, nothing_needed
from tests.integration.feed import Feed
from tests.integration.queries import status_of
from tests.integration.stream_settings import stream_settings
from tests.integration.streams import running
from tests.support.waiting import until
from tests.unit.schemas.naive import naive_place, naive_shard
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = Log(table({"id": "int"}, {"number": "int"}, regular={"v": "int"}, keyspace="shop", name="items"))
PARTITIONS = 12
AHEAD_MS = 5_500
"""So long before it operates a generation must be in the topic, and a moment more."""
FAR_MS = 3_600_000


Assigned = tuple[bytes, int, tuple[int, bytes] | None]
"""A change's key, its token, and the timestamp and id of its stream."""


def assigned(pieces: Iterable[Piece]) -> tuple[Assigned, ...]:
    """The streams of a batch's changes."""
    return tuple(
        (
            key_of(delivered.change),
            delivered.change.token,
            None if delivered.assignment is None else (delivered.assignment.generation, delivered.assignment.stream_id),
        )
        for piece in pieces
        for delivered in piece.changes
    )


class Recording:
    """A sink that keeps what it is given, batch by batch."""

    def __init__(self, *, by_tasks: bool) -> None:
        self.batches: list[list[Assigned]] = []
        self.capabilities = Capabilities(executors=by_tasks)

    def batch_write(self, batch: MicroBatch, needed: Needed = nothing_needed) -> BatchWrite:
        del batch, needed
        return BatchWrite(RecordingWriter(), self._commit)

    def _commit(self, messages: Sequence[CommitMessage]) -> Summary:
        details: list[Any] = [message.detail for message in messages]
        changes = [change for detail in details for change in detail]
        self.batches.append(changes)
        return Summary(changes=len(changes))

    def close(self) -> None:
        """Nothing is open."""

    def until(self, count: int) -> None:
        """Wait until so many changes were delivered."""
        until(lambda: sum(map(len, self.batches)) >= count, f"{count} changes")


@dataclass(frozen=True)
class RecordingWriter:
    """Brings the streams of a share's changes to the driver."""

    def write(self, share: KafkaPartition, pieces: Iterable[Piece]) -> CommitMessage:
        changes = assigned(pieces)
        return CommitMessage(share, Summary(changes=len(changes)), changes)


class Load:
    """Changes of many partitions, whose write times are what the test wants; each is a row of its own."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self.written: dict[bytes, int] = {}
        """Key -> write time in microseconds."""

    def write(self, *times_ms: int) -> None:
        """One transaction: for each time a change at its first and its last microsecond, and just before it."""
        first = len(self.written)
        times = [ms * 1000 + d for ms in times_ms for d in (-1, 0, 999) for _ in range(PARTITIONS)]
        changes = [LOG.insert((first + n,), (0,), micros, v=1) for n, micros in enumerate(times)]
        self._feed.publish(changes)
        self.written.update(zip(map(key_of, changes), times, strict=True))


def key_of(change: Change) -> bytes:
    """Each change has a partition of its own."""
    assert change.key is not None
    return change.key


@pytest.fixture(params=["driver", "executors"])
def execution(request: pytest.FixtureRequest) -> str:
    """Who assigns and writes."""
    return str(request.param)


@pytest.fixture
def settings(kafka: LocalKafka, prefix: str, tmp_path: Path, execution: str) -> Settings:
    """Settings of a stream of its own."""
    return stream_settings(kafka, prefix, {"checkpoint": str(tmp_path / "checkpoint"), "execution": execution})


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def looked_up(generations: list[Generation], token: int, written: int) -> tuple[int, bytes]:
    """By write time and token, in the simplest way: no column, no numpy, no look-up of ours."""
    operating = [generation for generation in generations if generation.timestamp * 1000 <= written]
    generation = operating[-1] if operating else generations[0]
    entries = list(generation.entries)
    entry = entries[naive_place([one.token_range_end for one in entries], token)]
    stream = entry.streams[naive_shard(len(entry.streams), entry.sharding_ignore_msb, token)]
    return generation.timestamp, stream.value


def noted(settings: Settings, batch: int) -> tuple[int, int]:
    """How many generations a batch knew, and until when (ms)."""
    file = json.loads(Path(settings.stream.checkpoint, "tailrace", f"{batch}.json").read_text())
    return len(file["generations"]), file["known_until"]


@pytest.mark.promise("stream.generation-of-write-time", "stream.no-generation")
@pytest.mark.long
def test_generations_switch_in_the_middle_of_a_load(
    spark: SparkSession, empty_feed: Feed, settings: Settings, execution: str, caplog: pytest.LogCaptureFixture
) -> None:
    sink, load, progress = Recording(by_tasks=execution == "executors"), Load(empty_feed), list[Progress]()
    stop = threading.Event()
    with running(Stream(spark, settings, sink, stop=stop, on_batch=progress.append), stop):
        generations, _ = first_and_second(spark, empty_feed, sink, load)
    check_the_wait(progress, caplog)
    check(sink, load, settings, generations, progress)


def first_and_second(spark: SparkSession, feed: Feed, sink: Recording, load: Load) -> tuple[list[Generation], int]:
    """A load that begins before any generation; the first comes late and by halves, the second in the middle of it.

    Returns both, and the second's time (ms). Everything is delivered when it returns.
    """
    began = now_ms() - FAR_MS
    load.write(began, now_ms())
    until(lambda: status_of(spark).startswith("Batch 0 waits for the generations: "), "the batch to wait")
    commit = feed.announce_half(began)
    until(lambda: "no valid generation" in status_of(spark), "its reason")
    assert not sink.batches
    generations = [commit()]
    sink.until(len(load.written))
    load.write(began - FAR_MS, began, now_ms(), now_ms() + AHEAD_MS)
    switch = now_ms() + AHEAD_MS
    generations.append(feed.announce(switch, began))
    load.write(began - 1, switch - 1, switch, switch + 1, switch + FAR_MS)
    sink.until(len(load.written))
    return generations, switch


def check_the_wait(progress: list[Progress], caplog: pytest.LogCaptureFixture) -> None:
    """The first batch says that it waited, for how long, and for what; the log has said so meanwhile; others none."""
    first, *others = progress
    assert first.blocked_seconds > 0
    assert any("no valid generation" in why for why in first.blocked_by)
    assert "blocked 0.0 s" not in str(first)
    assert "no valid generation is published yet" in str(first)
    assert "batch 0 waits for the generations: " in caplog.text
    assert {(one.blocked_seconds, one.blocked_by) for one in others} == {(0.0, ())}


def check(
    sink: Recording, load: Load, settings: Settings, generations: list[Generation], progress: list[Progress]
) -> None:
    """Every change once; each as the look-up says: in all generations where the batch could know, else in its own."""
    delivered = [key for batch in sink.batches for key, _, _ in batch]
    assert sorted(delivered) == sorted(load.written)
    settled, used = 0, set[int]()
    for number, batch in enumerate(sink.batches):
        count, known_until = noted(settings, number)
        times = [load.written[key] for key, _, _ in batch]
        for (_, token, stream), written in zip(batch, times, strict=True):
            assert stream is not None
            assert stream == looked_up(generations[:count], token, written)
            if written // 1000 <= known_until:
                assert stream == looked_up(generations, token, written)
                settled += 1
            used.add(stream[0])
        [marks] = [one.marks for one in progress if one.batch == number]
        assert marks.get("ahead", 0) == sum(written // 1000 > known_until for written in times)
        assert marks.get("before_first", 0) == sum(written < generations[0].timestamp * 1000 for written in times)
    assert used == {generation.timestamp for generation in generations}
    assert settled > len(load.written) // 3
    assert len(sink.batches) > 1
