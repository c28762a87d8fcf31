"""Which mutations go to the cluster in one request. No I/O.

A request costs the driver far more than the values in it. So small mutations go together, as an unlogged batch, in
which the cluster takes each partition's as a mutation of its own. Neighbours on the ring go together: they have the
same replicas, but where two ranges meet. The limits are those from which Cassandra warns of a batch
(`unlogged_batch_across_partitions_warn_threshold`, `batch_size_warn_threshold`). What is larger goes alone: of one
partition Cassandra takes any batch, whatever its size (BatchStatement.verifyBatchSize).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from tailrace_spark.sinks.cassandra.cql import Mutation, Part

MOST_MUTATIONS: Final = 10
MOST_BYTES: Final = 4 << 10
"""As `Mutation.weight` counts them, which is more than Cassandra counts; it warns from 5 KiB on."""


def requests(mutations: Iterable[Mutation]) -> Iterator[tuple[Part, ...]]:
    """The statements of each request: those of neighbouring small mutations, or of one that is larger."""
    together: list[Part] = []
    count = weight = 0
    for mutation in sorted(mutations, key=_token):
        added = mutation.weight
        if count and (count == MOST_MUTATIONS or weight + added > MOST_BYTES):
            yield tuple(together)
            together = []
            count = weight = 0
        together += mutation.statements
        count += 1
        weight += added
    if together:
        yield tuple(together)


def _token(mutation: Mutation) -> int:
    return mutation.token
