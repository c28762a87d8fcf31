"""The demo for a pipe: one JSON line for each change that arrived, and one for how it ended; words go elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from math import isfinite
from typing import TextIO

from tailrace.demo.comparison import Comparison
from tailrace.demo.display import Counts, Landed, Outcome
from tailrace_schemas.change import Bound, Change, record_times

_SHOWN_DIFFERENCES = 20


class Lines:
    """A Display that writes JSON lines to `out`, and what happens to `say`."""

    def __init__(self, out: TextIO, say: Callable[[str], None]) -> None:
        self._out = out
        self._say = say
        self._fetching = 0

    def fetched(self, done: int, total: int) -> None:
        """Says every fourth of the way, unless everything was there."""
        fourth = 4 * done // max(1, total)
        if done < total and fourth > self._fetching:
            self._fetching = fourth
            self._say(f"jars: {done >> 20} of {total >> 20} MiB")

    def part(self, name: str, state: str, where: str = "") -> None:
        self._say(" ".join(filter(None, (f"{name}:", state, where))))

    def landed(self, landed: Landed) -> None:
        self._write(change_line(landed))

    def counts(self, counts: Counts) -> None:
        """Only the last ones are shown, with the outcome."""

    def refresh(self) -> None:
        """Every line is out already."""

    def finished(self, outcome: Outcome) -> None:
        self._write(outcome_line(outcome))
        self._say(verdict(outcome.comparison))

    def addresses(self, lines: Mapping[str, str]) -> None:
        for name, address in lines.items():
            self._say(f"{name}: {address}")

    def close(self) -> None:
        """Nothing is open."""

    def _write(self, line: Mapping[str, object]) -> None:
        self._out.write(json.dumps(line, default=_plain, ensure_ascii=False, allow_nan=False) + "\n")
        self._out.flush()


def change_line(landed: Landed) -> dict[str, object]:
    """One change: what it is, where it stands in Kafka, what the SQLite file has now."""
    record, change = landed.seen, landed.seen.change
    line: dict[str, object] = {
        "table": str(change.table),
        "op": change.op.value,
        "key": record.key,
        **_range(change),
        "written": record_times(change)[0],
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "stream_id": landed.stream_id,
    }
    if landed.rows is None:
        line["row"] = None if landed.row is None else {name: _finite(value) for name, value in landed.row.items()}
    else:
        line["rows"] = landed.rows
    return line | {"seconds": None if landed.seconds is None else round(landed.seconds, 3)}


def outcome_line(outcome: Outcome) -> dict[str, object]:
    """The last line: identical or not, how many rows, and the first differences."""
    comparison, counts = outcome.comparison, outcome.counts
    median = counts.median_seconds
    line: dict[str, object] = {
        "identical": comparison.identical,
        "rows": comparison.total,
        "tables": comparison.rows,
        "statements": counts.written,
        "changes": counts.landed,
        "median_seconds": None if median is None else round(median, 3),
        "seconds": round(outcome.seconds, 1),
    }
    if comparison.differences:
        line["differences"] = [str(difference) for difference in comparison.differences[:_SHOWN_DIFFERENCES]]
    return line


def verdict(comparison: Comparison) -> str:
    """`identical: N rows`, or which differ."""
    if comparison.identical:
        return f"identical: {comparison.total} rows"
    lines = [f"  {difference}" for difference in comparison.differences[:_SHOWN_DIFFERENCES]]
    left_out = len(comparison.differences) - len(lines)
    tail = [f"  and {left_out} more"] if left_out else []
    return "\n".join((f"NOT identical: {len(comparison.differences)} differences", *lines, *tail))


def _range(change: Change) -> dict[str, object]:
    if change.start is None or change.end is None:
        return {}
    return {"from": _bound(change.start), "to": _bound(change.end)}


def _bound(bound: Bound) -> dict[str, object]:
    return {"values": list(bound.values), "inclusive": bound.inclusive}


def _finite(value: object) -> object:
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else str(value)
