"""The state table of a current table of a lake: what later merges need, by partition, read and put in place.

`bucket` is that of the partition. `clustering` and the states are as in `state_store.state_table`. `written_as` has a
row's clustering columns as they were written, `batch` the number of the last commit that wrote it. The table's entry
stands under the bucket -1, an empty key and a name.

A table's files are mostly read outside of Python, so that costs no time of what is computed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace_spark.merge.partition import RowToStore, StoredPartition, StoredRow
from tailrace_spark.merge.stored_row import ROW, EncodedState, HeadRow, RowKey, head_of
from tailrace_spark.merge.table_record import TableRecord, decode_record, encode_record
from tailrace_spark.sinks.lake.fast_rows import FastRows, StoredRows, bucket_of, cut
from tailrace_spark.sinks.lake.names import Names
from tailrace_spark.sinks.lake.store import Condition, LakeTable

Purgeable = tuple[RowKey, int, EncodedState, Sequence[bytes | None] | None]
"""(its key, its `deletes_from`, what is stored, its clustering columns as they were written)."""
BATCH: Final = "tailrace/batch"
"""The application id under which both tables note the number of the last batch that they have."""
IDENTITY: Final = ("bucket", "key", "clustering")
SCHEMA: Final = pa.schema(
    [("key", pa.binary()), ("clustering", pa.binary()), ("newest", pa.int64()), ("state", pa.binary()),
     ("generation", pa.int64()), ("stream_id", pa.binary()), ("next_expiry", pa.int64()), ("deletes_from", pa.int64()),
     ("written_as", pa.list_(pa.binary())), ("batch", pa.int64()), ("bucket", pa.int32())]
)  # fmt: skip
WITH_GONE: Final = SCHEMA.append(pa.field("gone", pa.bool_()))
_NEEDED: Final = ("key", "clustering", "state", "generation", "stream_id", "next_expiry", "written_as")
_WHOLE_TABLE: Final = -1
_IN_TABLE: Final = ("bucket", "!=", _WHOLE_TABLE)
_DEFINITION: Final = b"definition"
WORTH_A_PART: Final = 4_000
"""Keys: to read fewer at a time takes as long."""

Part = tuple[Collection[bytes], StoredRows]
"""Keys of partitions, and all rows of these."""


@dataclass(frozen=True, slots=True)
class TableEntry(TableRecord):
    """What is known of a table as a whole.

    `buckets`: into how many parts its rows are put, for ever (`bucket_of`). `since`: the number of the batch that last
    changed any of it. `names`: what the table that shows it calls columns and fields (lake.names).
    """

    buckets: int = 0
    since: int = 0
    names: Names = field(default_factory=dict)


class StateTable:
    """One state table as it was at one version; None: not made yet."""

    def __init__(self, stored: LakeTable | None) -> None:
        self.stored = stored
        self.batch = 0 if stored is None else stored.version_of(BATCH) or 0

    def entry(self) -> TableEntry | None:
        """What is known of the whole table; None: nothing yet."""
        rows = {row["clustering"]: row for row in self._rows([("bucket", "=", _WHOLE_TABLE)])}
        if _DEFINITION not in rows:
            return None
        row = rows[_DEFINITION]
        record, additions = decode_record(row["state"])
        return TableEntry(
            record.definition,
            record.announced,
            record.truncations,
            record.purged_to,
            buckets=additions["buckets"],
            since=row["batch"],
            names=additions["names"],
        )

    def find(self, keys: Collection[bytes], within: Collection[int]) -> Any | None:
        """All rows of these partitions, which are of these buckets: a pyarrow Table for `stored_rows`; None: none."""
        if self.stored is None or not keys:
            return None
        return self.stored.read(_NEEDED, [("bucket", "in", sorted(within))], keys)

    def partitions(self, keys: Collection[bytes], buckets: int) -> dict[bytes, StoredPartition]:
        """These partitions; those of which nothing is known are left out."""
        return stored_partitions(stored_rows(self.find(keys, {bucket_of(key, buckets) for key in keys})))

    def bucket(self, number: int) -> dict[bytes, StoredPartition]:
        """All partitions of a bucket."""
        table = None if self.stored is None else self.stored.read(_NEEDED, [("bucket", "=", number)])
        return stored_partitions(stored_rows(table))

    def due(self, now: int) -> set[bytes]:
        """The keys of partitions in which something reads otherwise by `now`, in seconds."""
        return self._keys([("next_expiry", "<=", now), _IN_TABLE])

    def since(self, batch: int) -> set[bytes]:
        """The keys of partitions that a later batch than this one wrote."""
        return self._keys([("batch", ">", batch), _IN_TABLE])

    def purgeable(self, until: int, limit: int) -> list[Purgeable]:
        """States in which something deletes that was written and came by `until`, in seconds, the oldest first."""
        if self.stored is None:
            return []
        condition = [("deletes_from", "<=", until), _IN_TABLE]
        rows = (
            self.stored.read([*_NEEDED, "deletes_from"], condition).sort_by("deletes_from").slice(0, limit).to_pylist()
        )
        return [
            (
                (row["key"], row["clustering"]),
                row["deletes_from"],
                (row["state"], row["generation"], row["stream_id"]),
                row["written_as"],
            )
            for row in rows
        ]

    def all_keys(self) -> set[bytes]:
        """The keys of all partitions."""
        return self._keys([_IN_TABLE])

    def _keys(self, condition: Condition) -> set[bytes]:
        if self.stored is None:
            return set()
        return set(self.stored.read(["key"], condition)["key"].to_pylist())

    def _rows(self, condition: Condition) -> list[dict[str, Any]]:
        return [] if self.stored is None else self.stored.read(SCHEMA.names, condition).to_pylist()


def stored_rows(stored: Any | None) -> StoredRows:
    """What `StateTable.find` found, taken apart."""
    if stored is None:
        return StoredRows([], [], [], [], [], [], [0], [])
    lengths = pc.fill_null(pc.list_value_length(stored["written_as"]), 0).to_numpy()
    return StoredRows(
        _octets(stored["key"]),
        _octets(stored["clustering"]),
        _octets(stored["state"]),
        _integers(stored["generation"]),
        _octets(stored["stream_id"]),
        _integers(stored["next_expiry"]),
        [0, *np.cumsum(lengths).tolist()],
        _octets(pc.list_flatten(stored["written_as"])),
    )


def state_rows(
    stored: Iterable[RowToStore], removed: Iterable[RowKey], batch: int, buckets: int
) -> list[dict[str, Any]]:
    """The rows to store and to remove, as rows of SCHEMA and the column `gone`."""
    rows: list[dict[str, Any]] = []
    for row, written_as in stored:
        key, clustering, newest, state, generation, stream_id, expiry, deletes = row
        rows.append(
            {"key": key, "clustering": clustering, "newest": newest, "state": state, "generation": generation,
             "stream_id": stream_id, "next_expiry": expiry, "deletes_from": deletes, "written_as": written_as,
             "batch": batch, "bucket": bucket_of(key, buckets), "gone": False}
        )  # fmt: skip
    for key, clustering in removed:
        rows.append({"key": key, "clustering": clustering, "bucket": bucket_of(key, buckets), "gone": True})
    return rows


def entry_rows(entry: TableEntry) -> list[dict[str, Any]]:
    """What is known of a whole table, as `state_rows`."""
    additions = {"buckets": entry.buckets, "names": entry.names}
    row = {"key": b"", "batch": entry.since, "bucket": _WHOLE_TABLE, "gone": False}
    return [{**row, "clustering": _DEFINITION, "state": encode_record(entry, additions).encode()}]


def fast_state_rows(plain: FastRows, batch: int) -> Any:
    """The states of these rows, as a pyarrow Table of SCHEMA and `gone`."""
    rows = len(plain.keys)
    columns = {
        "key": plain.keys, "clustering": plain.clusterings, "newest": plain.newest, "state": plain.states,
        "generation": plain.generations, "stream_id": plain.streams, "written_as": plain.written_as,
        "bucket": plain.buckets,
    }  # fmt: skip
    constants = {"batch": batch, "gone": False}
    arrays = [
        pa.array(columns[of.name], of.type)
        if of.name in columns
        else pa.repeat(pa.scalar(constants.get(of.name), of.type), rows)
        for of in WITH_GONE
    ]
    return pa.Table.from_arrays(arrays, schema=WITH_GONE)


def stored_partitions(
    stored: StoredRows, whole_partitions: Collection[bytes] | None = None, rows: Collection[RowKey] = ()
) -> dict[bytes, StoredPartition]:
    """The partitions of these rows; with `whole_partitions`, these alone, and of others only `rows`."""
    heads: dict[bytes, list[HeadRow]] = {}
    expiries: dict[bytes, int | None] = {}
    inner: dict[bytes, dict[bytes, StoredRow]] = {}
    for row_key, index in stored.at.items():
        key, clustering = row_key
        if whole_partitions is not None and key not in whole_partitions and row_key not in rows:
            continue
        encoded = (stored.states[index], stored.generations[index], stored.streams[index])
        expiry = stored.expiries[index]
        if clustering < ROW:
            heads.setdefault(key, []).append((clustering, *encoded))
            if expiry is not None:  # only a static row has one
                expiries[key] = expiry
        else:
            inner.setdefault(key, {})[clustering] = StoredRow(encoded, stored.clustering_of(index), expiry)
    partitions = {}
    for key in {*heads, *inner}:
        head = head_of(sorted(heads.get(key, ()), key=lambda row: row[0]))
        partitions[key] = StoredPartition(head.deletions, head.static, expiries.get(key), inner.get(key, {}))
    return partitions


def _octets(column: Any) -> list[Any]:
    """The values of a column of binary, bytes or None."""
    # One array holds 2 GiB of them, and a column more.
    return [value for chunk in column.chunks for value in _octets_of(chunk)]


def _octets_of(array: Any) -> list[Any]:
    if not len(array):
        return []
    _, offset_buffer, data = array.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[array.offset : array.offset + len(array) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    octets = b"" if data is None else data.slice(first, last - first).to_pybytes()
    return _with_nulls(array, cut(octets, (offsets - first).tolist()))


def _integers(column: Any) -> list[int | None]:
    array = column.combine_chunks()
    return _with_nulls(array, pc.fill_null(array, 0).to_numpy().tolist())


def _with_nulls(array: Any, values: list[Any]) -> list[Any]:
    if not array.null_count:
        return values
    nulls = array.is_null().to_numpy(zero_copy_only=False).tolist()
    return [None if null else value for null, value in zip(nulls, values, strict=True)]


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
