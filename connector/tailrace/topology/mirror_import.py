"""The streams of the v1 table for the tables that followed it: which generations, and what is written. Pure.

ScyllaDB's procedure (generation_service::maybe_rewrite_streams_descriptions, stream-ids.md 4), step by step:

    1  Without cdc_streams_descriptions there is nothing to do.
    2  Where cdc_local has the marker, key 'rewritten', there is nothing to do.
    3  Where no table has CDC, nothing is copied, and the marker is written.
    4  All timestamps of the v1 table are read in the background.
    5  Those are skipped after which a later one is still older than the oldest change of every table with CDC.
    6  Those that the later tables have are skipped; the others are copied from the generation's description.
    7  Last, the marker is written.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from tailrace.topology.mirror_plan import Step, stream_rows, timestamp_row

LOG_SUFFIX: Final = "_scylla_cdc_log"
DEFAULT_TTL_SECONDS: Final = 86_400
"""How long ScyllaDB keeps changes in a log table, unless it is configured otherwise."""

# As ScyllaDB: clocks may differ by so much.
_CLOCKS_MS: Final = 10_000


def log_ttls(tables: Iterable[Mapping[str, Any]]) -> tuple[int, ...]:
    """How long each table with CDC has its changes, in seconds; 0: always. Of rows of system_schema.tables.

    A table's changes live as long as its log table says; a day where it has none.
    """
    ttls: dict[tuple[str, str], int] = {}
    for row in tables:
        name = (row["keyspace_name"], row["table_name"].removesuffix(LOG_SUFFIX))
        if row["table_name"].endswith(LOG_SUFFIX):
            ttls[name] = row["default_time_to_live"] or 0
        elif row["cdc"]:
            ttls.setdefault(name, DEFAULT_TTL_SECONDS)
    return tuple(ttls.values())


def generations_to_copy(timestamps: Iterable[int], ttls: Sequence[int], now_ms: int) -> tuple[int, ...]:
    """Step 5: the generations (milliseconds, ascending) that some table may still have changes of.

    Those from the last one on that is older than any change can be: it operated when the oldest change was written.
    """
    ordered = sorted(timestamps)
    if not ttls:
        return ()
    if 0 in ttls:
        return tuple(ordered)
    oldest = now_ms - max(ttls) * 1000 - _CLOCKS_MS
    return tuple(ordered[max(0, bisect_left(ordered, oldest) - 1) :])


def copy_steps(
    time: int, description: Sequence[tuple[Any, Sequence[Any], int]], existing: Collection[int] = ()
) -> Iterator[Step]:
    """Step 6: one generation from its description (range end, streams, ignore_msb), as it stands: rows, then timestamp.

    Streams are copied unread: those of old releases have no version that we would take.
    """
    rows = [(int(range_end), list(dict.fromkeys(streams))) for range_end, streams, _ in description]
    yield from stream_rows(time, rows, existing)
    yield timestamp_row(time)
