"""Merges a batch into one table's index in groups of its partitions, several at a time.

While the server answers for one group, another is merged and rendered here. All rows of a partition are of one group,
which reads and writes them in the order that one merge does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor

from tailrace_spark.merge.batch_changes import BatchChanges
from tailrace_spark.sinks.opensearch.client import SearchClient
from tailrace_spark.sinks.opensearch.documents import Documents
from tailrace_spark.sinks.opensearch.index import TableIndex
from tailrace_spark.sinks.opensearch.merge import DocumentMerge, MergeOutcome


def merge_groups(
    client: SearchClient,
    index: TableIndex,
    documents: Documents,
    now: int,
    batch: BatchChanges,
    *,
    size: int,
    at_once: int,
) -> MergeOutcome:
    """Merge what was gathered, `size` rows or so in a group and `at_once` groups at a time.

    Raises as `DocumentMerge.run` does, when no request is under way any more.
    """
    if at_once == 1 or documents.whole_partitions or len(batch.rows) <= size:
        return DocumentMerge(client, index, documents, now).run(batch)

    def merged(group: BatchChanges) -> MergeOutcome:
        return DocumentMerge(client, index, documents, now).run(group)

    together = {*batch.deletions, *batch.statics} if documents.table.clustering else set[bytes]()
    outcome = MergeOutcome()
    with ThreadPoolExecutor(at_once, thread_name_prefix="tailrace-search") as pool:
        under_way = [pool.submit(merged, group) for group in groups(batch, size, together)]
        try:
            for future in under_way:
                done = future.result()
                outcome.rows |= done.rows
                outcome.refused |= done.refused
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # what has begun is waited for behind
            raise
    return outcome


def groups(batch: BatchChanges, size: int, together: Collection[bytes] = ()) -> Iterator[BatchChanges]:
    """What was gathered, cut between partitions into parts of `size` rows, or more where one partition has more.

    The partitions `together` are one part, the first: what they need of the index is then searched for once.
    """
    first, keys = BatchChanges(), dict[bytes, BatchChanges]()
    for key in dict.fromkeys((*batch.deletions, *batch.statics, *(key for key, _ in batch.rows))):
        keys[key] = first if key in together else BatchChanges()
        if key in batch.deletions:
            keys[key].deletions[key] = batch.deletions[key]
        if key in batch.statics:
            keys[key].statics[key] = batch.statics[key]
    for row_key, changes in batch.rows.items():
        keys[row_key[0]].rows[row_key] = changes
    if together:
        yield first
    group, count = BatchChanges(), 0
    for key, partition in keys.items():
        if key in together:
            continue
        group.deletions |= partition.deletions
        group.statics |= partition.statics
        group.rows |= partition.rows
        count += len(partition.rows) or 1
        if count >= size:
            yield group
            group, count = BatchChanges(), 0
    if count:
        yield group
