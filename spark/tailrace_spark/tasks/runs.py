"""A task's Arrow batches cut into runs of records of one Kafka partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter

import numpy as np
import pyarrow as pa

from tailrace_schemas.topics import KafkaPartition

Run = tuple[KafkaPartition, pa.RecordBatch]


def partition_runs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[KafkaPartition, Iterator[pa.RecordBatch]]]:
    """Each Kafka partition with its batches, in the order in which they come.

    A partition's records stand together in a task, as Kafka's source and a sort bring them. What is left of a
    partition's batches is passed over when the next one is asked for.
    """
    for partition, runs in groupby(_cut(batches), key=itemgetter(0)):
        yield partition, (batch for _, batch in runs)


def _cut(batches: Iterable[pa.RecordBatch]) -> Iterator[Run]:
    for batch in batches:
        if not batch.num_rows:
            continue
        topics = batch.column("topic").dictionary_encode()
        codes = topics.indices.to_numpy(zero_copy_only=False)
        numbers = batch.column("partition").to_numpy(zero_copy_only=False)
        ends = np.flatnonzero((np.diff(codes) != 0) | (np.diff(numbers) != 0)) + 1
        begin = 0
        for end in [*ends.tolist(), batch.num_rows]:
            name = topics.dictionary[int(codes[begin])].as_py()
            yield (name, int(numbers[begin])), batch.slice(begin, end - begin)
            begin = end
