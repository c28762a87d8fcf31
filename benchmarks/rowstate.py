"""Row state per second: merging, showing and encoding, compiled and pure, beside a dict that keeps the last write.

Usage: python -m benchmarks.rowstate [changes]; alone it measures the code that `python` finds, and again as sources.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from uuid import UUID

from tailrace_common.build import compiled_sources
from tailrace_schemas.change import Cell, Change, Deletion, Marker, Op
from tailrace_schemas.cql.types import parse_type
from tailrace_schemas.cql.values import codec
from tailrace_schemas.table import Column, ColumnKind, Table
from tailrace_spark.rowstate.codec import decode_state, encode_state
from tailrace_spark.rowstate.partition import Partition
from tailrace_spark.rowstate.row import RowState, state_of
from tailrace_spark.rowstate.visible import Images, VisibleColumns

ROOT = Path(__file__).resolve().parent.parent
CHANGES = 200_000
ROWS = 2_000
COLUMNS = 8
ROUNDS = 3
SHAPES = ("insert", "update", "set")
STEPS = ("dict upsert, the limit", "merge", "decode, merge, encode", "the same, and show", "images")


def main(changes: int = CHANGES, *, again: bool = True) -> None:
    """Print a line for each step: thousands of changes a second, of each shape; best of three rounds."""
    compiled = bool(compiled_sources())
    print(f"{changes:,} changes over {ROWS:,} rows of {COLUMNS} columns and a set; thousands of changes a second")
    print(f"{'compiled' if compiled else 'pure':24}" + "".join(f"{shape:>10}" for shape in SHAPES))
    histories = [_history(shape, changes) for shape in SHAPES]
    for name, step in zip(STEPS, (_upsert, _merge, _store, _store_and_show, _images), strict=True):
        print(f"{name:24}" + "".join(f"{_best(step, history):10.0f}" for history in histories), flush=True)
    if compiled and again:
        sources = os.pathsep.join(str(ROOT / root) for root in ("schemas", "common", "connector", "spark"))
        environment = {**os.environ, "PYTHONPATH": sources}
        command = [sys.executable, "-m", "benchmarks.rowstate", str(changes), "pure"]
        subprocess.run(command, cwd=ROOT, env=environment, check=True)


def _best(step: Callable[[Sequence[Change]], None], history: Sequence[Change]) -> float:
    rates: list[float] = []
    for _ in range(ROUNDS):
        began = time.process_time()
        step(history)
        rates.append(len(history) / (time.process_time() - began) / 1000)
    return max(rates)


def _upsert(history: Sequence[Change]) -> None:
    rows: dict[tuple[bytes | None, ...], dict[tuple[bytes, bytes | None], bytes | None]] = {}
    for change in history:
        row = rows.setdefault(change.clustering or (), {})
        for cell in change.cells:
            row[cell.column.name_bytes, cell.path] = cell.value


def _merge(history: Sequence[Change]) -> None:
    rows: dict[tuple[bytes | None, ...], RowState] = {}
    for change in history:
        rows.setdefault(change.clustering or (), RowState()).absorb(state_of(change))


def _store(history: Sequence[Change]) -> None:
    rows: dict[tuple[bytes | None, ...], bytes] = {}
    for change in history:
        state, known = state_of(change), rows.get(change.clustering or ())
        if known is not None:
            stored = decode_state(known)
            stored.absorb(state)
            state = stored
        rows[change.clustering or ()] = encode_state(state)


def _store_and_show(history: Sequence[Change]) -> None:
    rows: dict[tuple[bytes | None, ...], bytes] = {}
    visible = VisibleColumns(history[0].table)
    for change in history:
        state, known = state_of(change), rows.get(change.clustering or ())
        if known is not None:
            stored = decode_state(known)
            stored.absorb(state)
            state = stored
        rows[change.clustering or ()] = encode_state(state)
        visible.of(state, Deletion(1, 1), 1)


def _images(history: Sequence[Change]) -> None:
    images, partition = Images(history[0].table), Partition()
    for change in history:
        images.apply(partition, (change,), now=1)


def _history(shape: str, count: int) -> list[Change]:
    """Changes of rows in any order: whole rows, one of eight columns, or one of twenty elements of a set."""
    table, random = _table(), Random(1)
    integers, text = codec(parse_type("int", {})), codec(parse_type("text", {}))
    simple = [column for column in table.regular if not column.type.multicell]
    several = next(column for column in table.regular if column.type.multicell)
    changes: list[Change] = []
    for number in range(count):
        written = 1_760_000_000_000_000 + number * 1000 + random.randrange(5_000)
        if shape == "set":
            element = integers.encode(random.randrange(20))
            cells: tuple[Cell, ...] = (Cell(several, element, written, None, None, b""),)
        else:
            chosen = simple if shape == "insert" else [random.choice(simple)]
            value = text.encode(f"value {number}")
            cells = tuple(Cell(column, None, written, None, None, value) for column in chosen)
        changes.append(
            Change(
                op=Op.INSERT if shape == "insert" else Op.UPDATE,
                table=table,
                token=0,
                key=b"\0\0\0\1",
                clustering=(integers.encode(random.randrange(ROWS)),),
                marker=Marker(written) if shape == "insert" else None,
                cells=cells,
            )
        )
    return changes


def _table() -> Table:
    def column(name: str, text: str, kind: ColumnKind, position: int = -1) -> Column:
        return Column(name, name.encode(), kind, parse_type(text, {}), position)

    regular = [column(f"v{number}", "text", ColumnKind.REGULAR) for number in range(COLUMNS)]
    return Table(
        keyspace="ks",
        name="t",
        id=UUID(int=1),
        partition_key=(column("p", "int", ColumnKind.PARTITION_KEY, 0),),
        clustering=(column("c", "int", ColumnKind.CLUSTERING, 0),),
        regular=(column("s", "set<int>", ColumnKind.REGULAR), *regular),
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else CHANGES, again=sys.argv[2:] != ["pure"])
