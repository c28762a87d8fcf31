"""The state table of a merged Delta table: what later merges need, by partition, read and put in place.

`bucket` is that of the partition. `clustering` and what stands under it is as in tailrace_spark.sinks.sql_state;
`written_as` has a row's clustering columns as they were written, `batch` the number of the last commit that wrote it.
What is said of the whole table stands under the bucket -1, an empty key and a name.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from tailrace_schemas.change import Deletion
from tailrace_schemas.table import Table
from tailrace_schemas.table_json import table_from_json, table_to_json
from tailrace_spark.rowstate.codec import decode_truncations, encode_truncations
from tailrace_spark.rowstate.truncation import TruncationState
from tailrace_spark.sinks.delta_visible import bucket_of
from tailrace_spark.sinks.lake import Condition, LakeTable, Number
from tailrace_spark.sinks.partition_merge import Kept, Known, KnownRow
from tailrace_spark.sinks.sql_heads import HeadRow, head_of
from tailrace_spark.sinks.sql_names import ROW
from tailrace_spark.sinks.sql_stored import RowKey

BATCH: Final = "tailrace/batch"
"""The application id under which both tables note the number of the last batch that they have."""
IDENTITY: Final = ("bucket", "key", "clustering")
SCHEMA: Final = pa.schema(
    [("key", pa.binary()), ("clustering", pa.binary()), ("newest", pa.int64()), ("state", pa.binary()),
     ("generation", pa.int64()), ("stream_id", pa.binary()), ("next_expiry", pa.int64()), ("deletes_from", pa.int64()),
     ("written_as", pa.list_(pa.binary())), ("batch", pa.int64()), ("bucket", pa.int32())]
)  # fmt: skip
_WHOLE_TABLE: Final = -1
_IN_TABLE: Final = Number("bucket").differs(_WHOLE_TABLE)
_DEFINITION, _TRUNCATIONS = b"definition", b"truncations"
_MICROS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class About:
    """What is known of a table as a whole. `erased`: what a truncation took away, and whatever comes later loses.

    `since`: the number of the batch that last changed any of it.
    """

    definition: Table
    announced: int
    buckets: int
    truncations: TruncationState = field(default_factory=TruncationState)
    erased: Deletion | None = None
    since: int = 0


class StateTable:
    """One state table as it was at one version; None: not made yet."""

    def __init__(self, stored: LakeTable | None) -> None:
        self.stored = stored
        self.batch = 0 if stored is None else stored.version_of(BATCH) or 0

    def about(self) -> About | None:
        """What is known of the whole table; None: nothing yet."""
        rows = {row["clustering"]: row for row in self._rows(Number("bucket").equals(_WHOLE_TABLE))}
        if _DEFINITION not in rows:
            return None
        said = json.loads(rows[_DEFINITION]["state"])
        since = max(row["batch"] for row in rows.values())
        about = About(table_from_json(said), said["announced"], said["buckets"], since=since)
        truncations = rows.get(_TRUNCATIONS)
        if truncations is None:
            return about
        erased = truncations["newest"]
        return replace(
            about,
            truncations=decode_truncations(truncations["state"]),
            erased=None if erased is None else Deletion(erased, erased // _MICROS),
        )

    def partitions(self, keys: Collection[bytes], buckets: int) -> dict[bytes, Known]:
        """These partitions; those of which nothing is known are left out."""
        within = sorted({bucket_of(key, buckets) for key in keys})
        return _known(self._rows(Number("bucket").among(within), keys))

    def bucket(self, number: int) -> dict[bytes, Known]:
        """All partitions of a bucket."""
        return _known(self._rows(Number("bucket").equals(number)))

    def due(self, at: int) -> set[bytes]:
        """The keys of partitions in which something reads otherwise by `at`, in seconds."""
        return self._keys(Number("next_expiry").at_most(at) & _IN_TABLE)

    def since(self, batch: int) -> set[bytes]:
        """The keys of partitions that a later batch than this one wrote."""
        return self._keys(Number("batch").above(batch) & _IN_TABLE)

    def all_keys(self) -> set[bytes]:
        """The keys of all partitions."""
        return self._keys(_IN_TABLE)

    def _keys(self, which: Condition) -> set[bytes]:
        if self.stored is None:
            return set()
        return set(self.stored.read(["key"], which)["key"].to_pylist())

    def _rows(self, which: Condition, keys: Collection[bytes] | None = None) -> list[dict[str, Any]]:
        return [] if self.stored is None else self.stored.read(SCHEMA.names, which, keys).to_pylist()


def state_rows(kept: Iterable[Kept], gone: Iterable[RowKey], batch: int, buckets: int) -> list[dict[str, Any]]:
    """What is put there and taken away, as rows of SCHEMA and `gone`."""
    rows: list[dict[str, Any]] = []
    for row, written_as in kept:
        key, clustering, newest, state, generation, stream_id, expiry, deletes = row
        rows.append(
            {"key": key, "clustering": clustering, "newest": newest, "state": state, "generation": generation,
             "stream_id": stream_id, "next_expiry": expiry, "deletes_from": deletes, "written_as": written_as,
             "batch": batch, "bucket": bucket_of(key, buckets), "gone": False}
        )  # fmt: skip
    for key, clustering in gone:
        rows.append({"key": key, "clustering": clustering, "bucket": bucket_of(key, buckets), "gone": True})
    return rows


def about_rows(about: About) -> list[dict[str, Any]]:
    """What is known of a whole table, as `state_rows`."""
    said = {**table_to_json(about.definition), "announced": about.announced, "buckets": about.buckets}
    definition = json.dumps(said, sort_keys=True).encode()
    erased = None if about.erased is None else about.erased.written
    one = {"key": b"", "batch": about.since, "bucket": _WHOLE_TABLE, "gone": False}
    return [
        {**one, "clustering": _DEFINITION, "state": definition},
        {**one, "clustering": _TRUNCATIONS, "state": encode_truncations(about.truncations), "newest": erased},
    ]


def _known(rows: Iterable[Mapping[str, Any]]) -> dict[bytes, Known]:
    heads: dict[bytes, list[HeadRow]] = {}
    expiries: dict[bytes, int | None] = {}
    inner: dict[bytes, dict[bytes, KnownRow]] = {}
    for row in rows:
        key, clustering = row["key"], row["clustering"]
        stored = (row["state"], row["generation"], row["stream_id"])
        if clustering < ROW:
            heads.setdefault(key, []).append((clustering, *stored))
            if row["next_expiry"] is not None:  # only a static row has one
                expiries[key] = row["next_expiry"]
        else:
            inner.setdefault(key, {})[clustering] = KnownRow(stored, tuple(row["written_as"]), row["next_expiry"])
    found = {}
    for key in {*heads, *inner}:
        head = head_of(sorted(heads.get(key, ()), key=lambda one: one[0]))
        found[key] = Known(head.deletions, head.static, expiries.get(key), inner.get(key, {}))
    return found
