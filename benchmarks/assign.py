"""Stream look-ups a second: whole columns (`streams.lookup`) beside the scalar rules (tailrace_schemas.streams).

Usage: python benchmarks/assign.py [nodes] [tokens per node] [streams per entry]
"""

from __future__ import annotations

import random
import sys
import time

import numpy as np

from tailrace_schemas.ring import Node, Ring
from tailrace_schemas.streams import Generation, build_generation, operating, stream_for
from tailrace_schemas.tokens import MAX_TOKEN, MIN_TOKEN
from tailrace_spark.streams.lookup import StreamTable

ROWS = 1_000_000
SCALAR_ROWS = 100_000
BATCH = 10_000
NOW = 1_760_000_000_000


def main(nodes: int = 12, tokens_per_node: int = 16, streams_per_entry: int = 1) -> None:
    """Print one line for each way; check first that they agree."""
    generations = _generations(nodes, tokens_per_node, streams_per_entry)
    table = StreamTable.of(generations, NOW + 5_000)
    drawn = np.random.default_rng(1)
    tokens = drawn.integers(MIN_TOKEN, MAX_TOKEN, ROWS, dtype=np.int64)
    # Most of a batch is of the last generation, as right after a change of topology.
    written = drawn.integers((NOW - 1_000) * 1000, (NOW + 6_000) * 1000, ROWS, dtype=np.int64)

    began = time.perf_counter()
    for at in range(0, ROWS, BATCH):
        table.assign(tokens[at : at + BATCH], written[at : at + BATCH]).stream_column()
    columns = ROWS / (time.perf_counter() - began)

    timestamps = [generation.timestamp for generation in generations]
    rows = list(zip(tokens[:SCALAR_ROWS].tolist(), written[:SCALAR_ROWS].tolist(), strict=True))
    began = time.perf_counter()
    scalar = [stream_for(generations[operating(timestamps, w, NOW + 5_000).generation], t).value for t, w in rows]
    one_by_one = SCALAR_ROWS / (time.perf_counter() - began)

    assert table.assign(tokens[:SCALAR_ROWS], written[:SCALAR_ROWS]).stream_column().to_pylist() == scalar  # noqa: S101
    print(f"{nodes} nodes x {tokens_per_node} tokens, {streams_per_entry} streams per entry, batches of {BATCH:,}")
    print(f"columns  {columns:14,.0f} look-ups/s")
    print(f"scalar   {one_by_one:14,.0f} look-ups/s")
    print(f"ratio    {columns / one_by_one:14,.0f}")


def _generations(nodes: int, tokens_per_node: int, streams_per_entry: int) -> list[Generation]:
    drawn = random.Random(1)
    ring = Ring(
        tuple(
            Node(f"host-{n}", "dc1", tuple(drawn.randrange(MIN_TOKEN + 1, MAX_TOKEN) for _ in range(tokens_per_node)))
            for n in range(nodes)
        )
    )
    return [
        build_generation(ring, streams_per_entry, timestamp=timestamp, seed=timestamp)
        for timestamp in (NOW - 10**6, NOW)
    ]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
