"""Entry points of the merge: states of rows and partitions, their bytes, batches merged into what is stored, images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from typing import Any, Final
from uuid import UUID

from tailrace_schemas.change import Change, Deletion, Op
from tailrace_schemas.cql.vint import write_signed
from tailrace_schemas.streams import Assignment
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import DeadLetter, Delivered, RecordId
from tailrace_spark.merge.batch_changes import BatchChangesBuilder, RowChanges, gather, group_by_table, truncate_batch
from tailrace_spark.merge.erasure import erase_partitions
from tailrace_spark.merge.partition import MergeResult, PartitionMerge, StoredPartition, StoredRow, mergeable
from tailrace_spark.merge.row import (
    covering,
    differs,
    fast_insert,
    fast_merge,
    is_redelivery,
    merge_row,
    merge_state,
    merges_fast,
)
from tailrace_spark.merge.stored_row import ROW, decode_stored, head_of, purge_stored, state_row
from tailrace_spark.rowstate.cells import context_of_total, shards, total
from tailrace_spark.rowstate.codec import (
    decode_deletion,
    decode_state,
    decode_truncations,
    encode_deletion,
    encode_state,
    encode_truncations,
    newest,
)
from tailrace_spark.rowstate.deletions import RangeDeletion, stronger
from tailrace_spark.rowstate.partition import Partition, deletes_from, deletions_of, purge, seconds
from tailrace_spark.rowstate.plain import plain_merge, plain_newest, plain_state, plain_time
from tailrace_spark.rowstate.row import RowState, merge, path_key, state_of
from tailrace_spark.rowstate.truncation import EVERYTHING, TruncationState, absorb, change_time, truncation_of
from tailrace_spark.rowstate.visible import Images, VisibleColumns, visible
from tailrace_spark.sinks.opensearch.documents import Documents
from tests.differential.cases import Case, Family, calls, examples
from tests.differential.inputs import HOSTS, WORDS, damaged, hostile_changes, logged_changes, values
from tests.unit.spark.cassandra import truncate

_STREAM: Final = Assignment(1, bytes(15) + b"\x01")
_NOW: Final = 1_764_000_000
MANY: Final = 60
"""So many changes has a table of which more is tried."""


@cache
def histories() -> Sequence[tuple[Table, Sequence[Change]]]:
    """Changes of each table, by one definition of it."""
    by_id: dict[tuple[UUID, str], list[Change]] = {}
    for change in (*logged_changes(), *hostile_changes()):
        by_id.setdefault((change.table.id, str(change.table.columns)), []).append(change)
    return [(changes[-1].table, changes) for changes in by_id.values()]


def delivered(random: Random, changes: Sequence[Change], start: int = 0) -> list[Delivered]:
    """As if read from a topic of two partitions, with streams or without."""
    streams = (None, _STREAM, Assignment(2, bytes(15) + b"\x11"))
    return [
        Delivered(RecordId("t.shop.plain", index % 2, start + index), change, random.choice(streams), announced=index)
        for index, change in enumerate(changes)
    ]


def _states(random: Random) -> Iterator[Case]:
    for number, (table, changes) in enumerate(histories()):
        for index, change in enumerate(changes):
            yield f"state {number} {index}", lambda of=change: _state(of)  # type: ignore[misc]  # a lambda's defaults have no types
        states = [state_of(change, _STREAM) for change in changes if change.clustering is not None]
        for index, state in enumerate(states[: examples(10)]):
            inputs = [*damaged(random, encode_state(state), examples(14))]
            yield from calls(f"bytes {number} {index}", _decoded, inputs)
            yield from calls(
                f"plain {number} {index}", _plain, ((some, changes[index % len(changes)]) for some in inputs)
            )
            yield from calls(
                f"purged {number} {index}",
                _purged,
                ((some, ROW, horizon) for some in inputs[:3] for horizon in WORDS[::5]),
            )
        for index in range(min(len(states), examples(2))):
            some = [encode_state(state) for state in random.choices(states, k=3)]
            yield from calls(f"merged {number} {index}", _merged, [(table, some, now) for now in (None, 10, _NOW)])


def _state(change: Change) -> object:
    state = state_of(change, _STREAM)
    encoded = encode_state(state)
    return (
        state,
        encoded,
        newest(state),
        plain_state(change),
        plain_time(change),
        state.next_expiry(),
        deletes_from(state),
    )


def _decoded(encoded: bytes) -> object:
    state = decode_state(encoded)
    settled = decode_state(encoded)
    settled.settle()
    return (
        state,
        encode_state(state),
        newest(state),
        settled,
        state.empty,
        state.assignment,
        decode_stored(encoded, 1, bytes(16)),
    )


def _plain(encoded: bytes, change: Change) -> object:
    written = plain_time(change)
    return plain_newest(encoded), plain_merge(encoded, change, 5 if written is None else written)


def _purged(encoded: bytes, clustering: bytes, horizon: int) -> object:
    state = decode_state(encoded)
    return purge_stored(clustering, (encoded, None, None), horizon), purge(state, horizon), state, deletes_from(state)


def _merged(table: Table, encoded: Sequence[bytes], now: int | None) -> object:
    """Some states together, under deletions; what SELECT shows of them."""
    results: list[object] = []
    together = RowState()
    for data in encoded:
        state = decode_state(data)
        results.append(differs(decode_stored(encoded[0], None, None), state))
        together = merge(together, state)
        results.append(merge_state(decode_stored(data, 1, bytes(16)), state, Deletion(2, 10)))
    together.assign(_STREAM)
    for deletion in (None, Deletion(2, 10), Deletion(2**60, 10)):
        if deletion is not None:
            together.shadow(deletion)
        results += [
            encode_state(together),
            visible(together, table, deletion, now),
            state_row((b"k", ROW), together, now),
        ]
        for columns in (VisibleColumns(table), VisibleColumns(table, static=True)):
            results += [
                columns.values(together, deletion, now),
                columns.of(together, None, now),
                columns.times(together, None, now or 0),
            ]
    return results


@dataclass(slots=True)
class Store:
    """What a state table has of one source table, in memory."""

    rows: dict[tuple[bytes, bytes], Any] = field(default_factory=dict)
    truncations: TruncationState = field(default_factory=TruncationState)

    def partitions(self) -> dict[bytes, StoredPartition]:
        partitions: dict[bytes, StoredPartition] = {}
        for key in dict.fromkeys(key for key, _ in self.rows):
            of_key = [(clustering, *row) for (name, clustering), row in sorted(self.rows.items()) if name == key]
            head = head_of((row[0], row[2], row[3], row[4]) for row in of_key if row[0] < ROW)
            rows = {row[0]: StoredRow((row[2], row[3], row[4]), row[7], row[5]) for row in of_key if row[0] >= ROW}
            partitions[key] = StoredPartition(head.deletions, head.static, None, rows)
        return partitions

    def apply(self, result: MergeResult[Any]) -> None:
        for row_key in result.removed:
            self.rows.pop(row_key, None)
        for row, written_as in result.stored:
            former = self.rows.get((row[0], row[1]))
            clustering = (former[6] if former else ()) if written_as is None else tuple(written_as)
            self.rows[row[0], row[1]] = (*row[2:8], clustering)


def _batches(random: Random) -> Iterator[Case]:
    for number, (table, changes) in enumerate(histories()):
        for index in range(examples(1 if len(changes) < MANY else 4)):
            batches = [random.choices(changes, k=random.randint(1, 12)) for _ in range(4)]
            some = [delivered(random, batch, 100 * place) for place, batch in enumerate(batches)]
            yield from calls(f"batches {number} {index}", _merged_batches, [(table, some, index % 3 == 2)])
            yield from calls(f"fast {number} {index}", _fast, [([*some[0], *some[1]],)])


def _merged_batches(table: Table, batches: Sequence[Sequence[Delivered]], all_rows: bool) -> object:
    """Batches merged one after another; then some is truncated, and the rest merged again."""
    renderer, store, results = Documents(table), Store(), list[object]()
    for place, batch in enumerate([*batches, batches[0]]):
        letters: list[DeadLetter] = []
        if place == 3:
            told = truncate(table, HOSTS[0], 3 * 10**6)
            batch = [*batch, replace(batch[0], change=told)]
        truncated = truncate_batch(store.truncations, batch, 1.0)
        store.truncations = truncated.truncations
        fit = mergeable(truncated.left, renderer, letters)
        stored = store.partitions()
        result: MergeResult[Any] = MergeResult()
        if truncated.erased is not None:
            stored_left, result = erase_partitions(renderer, stored, truncated.erased, 10)
            results.append(stored_left)
            stored = dict(stored_left)
        merging, gathered = PartitionMerge(renderer, 10, all_rows=all_rows), gather(fit)
        if place % 2:
            heads, of_heads = merging.merge_heads(stored, gathered)
            rows = {key: partition.rows for key, partition in stored.items()}
            merged = of_heads.then(merging.merge_rows(heads, rows, gathered.rows, [*rows][:1]))
        else:
            merged = merging.merge(stored, gathered)
        result = result.then(merged)
        store.apply(result)
        results += [
            result,
            sorted(map(repr, store.rows.items())),
            [(letter.reason, letter.record_id) for letter in letters],
        ]
        results += [encode_truncations(store.truncations), group_by_table(batch).keys()]
    partitions = store.partitions()
    for partition in partitions.values():
        deletions = partition.deletions
        results += [covering(deletions, clustering) for clustering in partition.rows]
    erased = [erase_partitions(renderer, store.partitions(), deletion, 10) for deletion in (EVERYTHING, Deletion(3, 1))]
    return results, [(left, result) for left, result in erased]


def _fast(changes: Sequence[Delivered]) -> object:
    results: list[object] = [merges_fast(changes[0].change.table)]
    stored: list[tuple[bytes, int | None, bytes | None]] = []
    builder = BatchChangesBuilder()
    for one in changes:
        builder.add([one])
        if one.change.op not in (Op.INSERT, Op.UPDATE, Op.DELETE):
            continue
        row = RowChanges(one.change.clustering or (), one)
        for floor in (None, Deletion(2, 10)):
            inserted = fast_insert(row, floor)
            results += [inserted, merge_row(None, row, floor)]
            for former in stored[-2:]:
                results += [
                    fast_merge(row, *former, floor),
                    is_redelivery(row, *former, floor),
                    merge_row(former, row, floor),
                ]
        state = state_of(one.change, one.assignment)
        if not state.empty:
            stored.append((encode_state(state), *(state.assignment or (None, None))))
    return results, builder.build()


def _partitions(random: Random) -> Iterator[Case]:
    for number, (table, changes) in enumerate(histories()):
        for index in range(examples(1 if len(changes) < MANY else 20)):
            some = random.choices(changes, k=random.randint(1, 12))
            yield from calls(f"images {number} {index}", _imaged, [(table, some, now) for now in (None, 10)])


def _imaged(table: Table, changes: Sequence[Change], now: int | None) -> object:
    images, partition, results = Images(table), Partition(), list[object]()
    results.append(images.apply(partition, changes[1:], now=now))
    for change in changes[:2]:
        results += [(image, image.op) for image in images.of_change(partition, change, now=now)]
        if change.op in (Op.DELETE_PARTITION, Op.DELETE_RANGE):
            results.append(deletions_of(change, _STREAM))
    results += [images.expire(partition, 9, 12), partition.covering(None)]
    for erased in (Deletion(2, 10), EVERYTHING):
        results += [images.truncate(partition, erased, now=now), partition.erase(erased)]
    return results, partition


def _bytes(random: Random) -> Iterator[Case]:
    deletions = [encode_deletion(Deletion(at, 10), end) for at in WORDS for end in (None, b"", b"\x03abc")]
    for index, data in enumerate(deletions):
        yield from calls(f"deletion {index}", decode_deletion, damaged(random, data, 8))
        yield from calls(
            f"purged deletion {index}",
            purge_stored,
            ((b"\x02a", (data, None, None), horizon) for horizon in WORDS[::4]),
        )
    told = [change for change in hostile_changes() if change.op is Op.TRUNCATE]
    former = bytes((2, 1)) + bytes(16) + b"\x04host" + write_signed(5) + write_signed(-(2**62))
    yield from calls("former truncations", decode_truncations, damaged(random, former, 40))
    for index in range(examples(30)):
        some = [truncation_of(one) for one in random.choices(told, k=3)]
        yield from calls(
            f"truncations {index}",
            _truncated,
            [(some, random.choice(logged_changes()), delay) for delay in (0.0, 30.0)],
        )
        state = absorb(TruncationState(), some, 1.0)[0]
        yield from calls(
            f"bytes of truncations {index}", decode_truncations, damaged(random, encode_truncations(state), 20)
        )
    counters = [data for of, data in values() if of.kind == "counter"]
    counters += [context_of_total(count, read) for count in WORDS[:8] for read in (0, 5)]
    for index, data in enumerate(counters):
        yield from calls(
            f"counter {index}", lambda some: (shards(some), total(shards(some))), damaged(random, data, 30)
        )
    for index, (of, data) in enumerate(values()[::3]):
        key = path_key(replace(of, frozen=False)) if of.kind in ("set", "map") else None
        if key is not None:
            yield from calls(f"path {index} of {of}", key, damaged(random, data[8:], 6))
    yield from calls("seconds", seconds, WORDS)
    yield from calls("stronger", stronger, ((Deletion(a, b), Deletion(b, a)) for a in WORDS[:8] for b in WORDS[:8]))
    yield from calls("range", repr, [RangeDeletion(b"a", None, Deletion(1, 2), None)])


def _truncated(truncations: Any, change: Change, delay: float) -> object:
    state, erased = absorb(TruncationState(), truncations, delay)
    return state, erased, state.covers(change, delay), change_time(change), absorb(state, truncations, delay)


FAMILIES: Final[tuple[Family, ...]] = (_states, _batches, _partitions, _bytes)
