"""What is known of the partitions of a batch, read while the batch is still gathered and merged.

A table's files are mostly read outside of Python, so that costs no time of what is computed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

from tailrace_spark.sinks.lake.fast_rows import StoredRows, bucket_of
from tailrace_spark.sinks.lake.state import StateTable, stored_rows

WORTH_A_PART: Final = 4_000
"""Keys: to read fewer at a time takes as long."""

Part = tuple[Collection[bytes], StoredRows]
"""Keys of partitions, and all rows of these."""


class StateReading:
    """The rows of some partitions, all of a partition in one part; each is there once."""

    def __init__(self, parts: Iterator[tuple[Collection[bytes], Callable[[], Any | None]]]) -> None:
        self._parts = parts
        self.parts: list[StoredRows] = []
        """Those that are there by now."""

    def __iter__(self) -> Iterator[Part]:
        """Raises ServiceError where the store does not answer."""
        for keys, result in self._parts:
            rows = stored_rows(result())
            self.parts.append(rows)
            yield keys, rows

    def all(self) -> list[StoredRows]:
        """All parts."""
        for _ in self:
            pass
        return self.parts


def read_now(state: StateTable, keys: Collection[bytes], buckets: int) -> StateReading:
    """All in one part, read when it is asked for."""
    within = {bucket_of(key, buckets) for key in keys}
    return StateReading(iter([(keys, lambda: state.find(keys, within))]))


@contextmanager
def reading(
    state: StateTable, keys: Collection[bytes], buckets: int, worth_a_part: int = WORTH_A_PART
) -> Iterator[StateReading]:
    """Begin to read; what is begun ends before this does. Fewer keys than `worth_a_part` are one part."""
    halves = _halves(keys, buckets, worth_a_part)
    pool = ThreadPoolExecutor(1, "tailrace-state")
    try:
        reads = [(part_keys, pool.submit(state.find, part_keys, within).result) for part_keys, within in halves]
        yield StateReading(iter(reads))
    finally:
        pool.shutdown(cancel_futures=True)


def _halves(
    keys: Collection[bytes], buckets: int, worth_a_part: int
) -> list[tuple[Collection[bytes], Collection[int]]]:
    """The keys of some buckets, and these, and those of the others; of few keys all in one."""
    bucket = {key: bucket_of(key, buckets) for key in keys}
    if len(keys) < worth_a_part:
        return [(keys, set(bucket.values()))]
    first = {key for key, bucket_index in bucket.items() if bucket_index < buckets // 2}
    second = bucket.keys() - first
    return [(part_keys, {bucket[key] for key in part_keys}) for part_keys in (first, second) if part_keys]
