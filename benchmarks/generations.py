"""What generations of a large cluster cost: to make, to store, to read, and to look streams up in.

Usage: python -m benchmarks.generations [nodes] [tokens per node] [streams per entry]
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from multiprocessing import get_context
from typing import Any, NamedTuple
from uuid import UUID

import mmh3
import numpy as np

from benchmarks.agent.processes import memory_mb_of
from tailrace_common.kafka import Record
from tailrace_common.topics import GenerationReader
from tailrace_schemas.generation_records import Proposal, encode_proposal
from tailrace_schemas.ring import Node, Ring, ring_seed
from tailrace_schemas.streams import Generation, build_generation, stream_for
from tailrace_schemas.tokens import MAX_TOKEN, MIN_TOKEN, token
from tailrace_spark.streams.lookup import GenerationColumns, Int64s, StreamTable

NOW = 1_760_000_000_000
ROWS = 1_000_000
BATCH = 10_000
SCALAR_ROWS = 100_000
ROUNDS = 5


class Made(NamedTuple):
    """What a process of its own measured; seconds, and the MiB that it grew by at most, the ring included."""

    records: list[tuple[bytes, bytes]]
    build: float
    encode: float
    build_memory: float
    memory: float


def main(nodes: int = 1_000, tokens_per_node: int = 256, streams_per_entry: int = 8) -> None:
    """Print a line for each thing that is measured."""
    vnodes = nodes * tokens_per_node
    print(
        f"{nodes:,} nodes x {tokens_per_node} tokens x {streams_per_entry} = {vnodes * streams_per_entry:,} streams\n"
    )
    made: Made = _apart(_make, nodes, tokens_per_node, streams_per_entry)
    print(f"make     {made.build:8.2f} s, at most {made.build_memory:,.0f} MiB with the ring")
    print(f"encode   {made.encode:8.2f} s, at most {made.memory:,.0f} MiB with the ring")
    sizes = [len(value) for _, value in made.records]
    print(f"store    {sum(sizes) / 1e6:8.2f} MB in {len(sizes)} records, the largest of {max(sizes):,} bytes")
    seconds, memory = _apart(_load, made.records)
    print(f"load     {seconds:8.2f} s to columns, at most {memory:,.0f} MiB with the records\n")
    generation = _reader(made.records).published[0].unpack().generation
    _look_ups(generation)
    _tokens()


def _apart(measure: Callable[..., Any], *arguments: Any) -> Any:
    """The outcome in a new process: its peak is nobody else's."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, arguments)


def _make(nodes: int, tokens_per_node: int, streams_per_entry: int) -> Made:
    drawn = random.Random(1)
    before = memory_mb_of()
    ring = Ring(
        tuple(
            Node(f"host-{n}", "dc1", tuple(drawn.randrange(MIN_TOKEN + 1, MAX_TOKEN) for _ in range(tokens_per_node)))
            for n in range(nodes)
        )
    )
    began = time.perf_counter()
    generation = build_generation(ring, streams_per_entry, timestamp=NOW, seed=ring_seed(ring, None))
    built, build_memory = time.perf_counter(), memory_mb_of() - before
    records = encode_proposal(Proposal(uuid=UUID(int=1), predecessor=None, ring=ring, generation=generation))
    return Made(list(records), built - began, time.perf_counter() - built, build_memory, memory_mb_of() - before)


def _load(records: list[tuple[bytes, bytes]]) -> tuple[float, float]:
    """Seconds from records, as Kafka hands them out, to columns; MiB that it took."""
    before, began = memory_mb_of(), time.perf_counter()
    StreamTable.of_published(_reader(records).published, None)
    return time.perf_counter() - began, memory_mb_of() - before + sum(len(value) for _, value in records) / 2**20


def _reader(records: list[tuple[bytes, bytes]]) -> GenerationReader:
    class Topic:
        def read_to_end(self) -> Iterator[Record]:
            return (Record(offset, NOW, key, value) for offset, (key, value) in enumerate(records))

        def close(self) -> None:
            """Nothing is open."""

    reader = GenerationReader(Topic())
    reader.refresh()
    return reader


def _look_ups(generation: Generation) -> None:
    columns, table = GenerationColumns.of(generation), StreamTable.of([generation], NOW + 5_000)
    tokens = np.random.default_rng(1).integers(MIN_TOKEN, MAX_TOKEN, ROWS, dtype=np.int64)
    written = np.full(ROWS, NOW * 1000, dtype=np.int64)
    ends = np.frombuffer(generation.entries.range_ends, dtype=np.int64)
    few = tokens[:SCALAR_ROWS].tolist()
    assert columns.look_up(tokens[:SCALAR_ROWS]).tolist() == [stream_for(generation, one).value for one in few]  # noqa: S101

    def batches(look: Callable[[Int64s, Int64s], object]) -> Callable[[], object]:
        return lambda: [look(tokens[at : at + BATCH], written[at : at + BATCH]) for at in range(0, ROWS, BATCH)]

    print(f"look-ups a second, in batches of {BATCH:,}")
    _rates(
        ("numpy.searchsorted alone: a range, no stream", ROWS, batches(lambda t, _: np.searchsorted(ends, t))),
        ("columns: a stream", ROWS, batches(lambda t, _: columns.look_up(t))),
        (
            "columns: generation, stream and mark, as Arrow",
            ROWS,
            batches(lambda t, w: table.assign(t, w).stream_column()),
        ),
        ("stream_for: one by one", SCALAR_ROWS, lambda: list(map(stream_for, repeat(generation), few))),
    )


def _tokens() -> None:
    drawn = random.Random(1)
    keys = [drawn.randbytes(drawn.randint(4, 40)) for _ in range(SCALAR_ROWS)]
    print("\ntokens a second, of keys of 4 to 40 bytes")
    _rates(
        ("mmh3.hash64, C, one by one: another token for most", SCALAR_ROWS, lambda: list(map(mmh3.hash64, keys))),
        ("token: one by one", SCALAR_ROWS, lambda: list(map(token, keys))),
    )


def _rates(*ways: tuple[str, int, Callable[[], object]]) -> None:
    """The best of some rounds, in which all ways take turns."""
    best = dict.fromkeys((name for name, _, _ in ways), 0.0)
    for _ in range(ROUNDS):
        for name, rows, run in ways:
            began = time.perf_counter()
            run()
            best[name] = max(best[name], rows / (time.perf_counter() - began))
    for name, rate in best.items():
        print(f"{name:52}{rate:14,.0f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
