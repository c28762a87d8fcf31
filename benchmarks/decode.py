"""From segment bytes to frames, objects and Avro: CPU seconds per million mutations, beside Cassandra's own reader."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from uuid import UUID

from benchmarks.corpus import EDITS, EVENTS, MUTATIONS, Corpus
from benchmarks.peers.cassandra import Peer, commit_log_reader
from benchmarks.segments import SOURCE, sections
from tailrace.changes.transcode import Transcoder
from tailrace.commitlog.frames import frames
from tailrace.commitlog.mutation import decode_mutation
from tailrace.commitlog.sections import Section
from tailrace_common.build import describe
from tailrace_schemas.table import Table

_ROUNDS = int(os.environ.get("TAILRACE_BENCH_ROUNDS", "5"))

Stage = Callable[[int, Section], int]
"""What is made of a section of this version; how many of its mutations it was made of."""


def main() -> None:
    """Print a line per stage, each from the file on; the best of some rounds, in which all take turns."""
    for corpus in (EVENTS, EDITS):
        _measure(corpus)


def _measure(corpus: Corpus) -> None:
    place, definitions = corpus.recorded()
    tables = {table.id: table for table in definitions.tables}
    segments = sorted(place.glob("*.log"))
    size = sum(path.stat().st_size for path in segments)
    print(f"{corpus.name}: {len(segments)} segments, {size / 1e6:.0f} MB, {describe()}, best of {_ROUNDS}\n")
    stages = _stages(tables)
    best = dict.fromkeys(stages, float("inf"))
    with ExitStack() as stack:
        peer = stack.enter_context(commit_log_reader(place, "perf", corpus.table_id, corpus.create))
        count, cold, warm = 0, 0.0, float("inf")
        for number in range(_ROUNDS):
            for name, stage in stages.items():
                found, seconds = _run(segments, stage)
                count = max(count, found) if name == "to Avro" else count
                best[name] = min(best[name], seconds)
            if peer is not None:
                first, warm = _peer(peer, warm, 1 if number else 5)
                cold = cold or first
    print(f"{'':<34}{'mutations/s':>12}{'MB/s':>8}{'CPU s per million':>20}")
    if peer is not None:
        best |= {"CommitLogReader, cells, cold JVM": cold, "CommitLogReader, cells, warm": warm}
    for name, seconds in best.items():
        print(f"{name:<34}{count / seconds:>12,.0f}{size / seconds / 1e6:>8.0f}{seconds / count * 1e6:>20.2f}")
    once, often = _memory(place, 1), _memory(place, 5)
    print(
        f"most memory to Avro: {once:.0f} MB, {often:.0f} MB with five times as many segments; one is mapped at a time"
    )
    print()
    if count < MUTATIONS:
        raise SystemExit(f"only {count} of {MUTATIONS} mutations were found")


def _peer(peer: Peer, warm: float, times: int) -> tuple[float, float]:
    runs = [peer.run()[1] for _ in range(times)]
    return runs[0], min(warm, *runs)


def _run(segments: list[Path], stage: Stage) -> tuple[int, float]:
    began, count = time.process_time(), 0
    for path in segments:
        for version, section in sections(path):
            count += stage(version, section)
    return count, time.process_time() - began


def _stages(tables: dict[UUID, Table]) -> dict[str, Stage]:
    by_bytes = {table_id.bytes: table for table_id, table in tables.items()}
    messages = Transcoder("bench").messages

    def only_frames(_version: int, section: Section) -> int:
        return sum(1 for _ in frames(section))

    def objects(version: int, section: Section) -> int:
        return len([decode_mutation(frame.payload, version, tables.get) for frame in frames(section)])

    def avro(version: int, section: Section) -> int:
        return sum(1 for frame in frames(section) if messages(frame.payload, version, by_bytes.get, SOURCE))

    return {
        "frames, checksums": only_frames,
        "to objects": objects,
        "to Avro": avro,
    }


def _memory(place: Path, times: int) -> float:
    """The most MB of a process that only decodes the segments, so many times."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.segments", place, str(times)], stdout=subprocess.PIPE, check=True
    )
    return float(done.stdout)


if __name__ == "__main__":
    main()
