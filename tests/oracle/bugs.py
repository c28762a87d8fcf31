"""Small bugs of the row state and of the SQL sink, each of which the oracle has to notice."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import Breakage, Needs


def _bug(name: str, file: str, old: str, new: str) -> Breakage:
    promise = "the sink shows what SELECT answers"
    return Breakage(name=name, promise=promise, file=file, old=old, new=new, needs=Needs.NODE, reds=())


BUGS: Final[tuple[Breakage, ...]] = (
    # -- which of two cells, markers or deletions holds
    _bug(
        "a deletion spares what was written at its microsecond",
        "spark/tailrace_spark/rowstate/cells.py",
        "deletion is not None and written <= deletion.written",
        "deletion is not None and written < deletion.written",
    ),
    _bug(
        "a live cell holds over a tombstone of its time",
        "spark/tailrace_spark/rowstate/cells.py",
        "return ends, tombstone, cell.expires",
        "return ends, not tombstone, cell.expires",
    ),
    _bug(
        "a plain cell holds over an expiring one of its time",
        "spark/tailrace_spark/rowstate/cells.py",
        "ends = tombstone or cell.ttl is not None",
        "ends = tombstone or cell.ttl is None",
    ),
    _bug(
        "the earlier expiry holds",
        "spark/tailrace_spark/rowstate/cells.py",
        "return ends, tombstone, cell.expires or 0",
        "return ends, tombstone, -(cell.expires or 0)",
    ),
    _bug(
        "the larger TTL holds",
        "spark/tailrace_spark/rowstate/cells.py",
        "cell.expires or 0, -(cell.ttl or 0)",
        "cell.expires or 0, cell.ttl or 0",
    ),
    _bug(
        "the smaller bytes hold",
        "spark/tailrace_spark/rowstate/cells.py",
        'cell.value or b"", cell.path or b""',
        'bytes(255 - one for one in cell.value or b""), cell.path or b""',
    ),
    _bug(
        "of equally old cells whichever came first holds",
        "spark/tailrace_spark/rowstate/cells.py",
        "return first if _cell_rank(first) >= _cell_rank(second) else second",
        "return first",
    ),
    _bug(
        "the older row marker holds",
        "spark/tailrace_spark/rowstate/cells.py",
        "return first if _marker_rank(first) >= _marker_rank(second) else second",
        "return second if _marker_rank(first) >= _marker_rank(second) else first",
    ),
    _bug(
        "a plain row marker holds over an expiring one of its time",
        "spark/tailrace_spark/rowstate/cells.py",
        "marker.written, marker.ttl is not None,",
        "marker.written, marker.ttl is None,",
    ),
    # -- what deletions cover
    _bug(
        "a row deletion is forgotten where another one came first",
        "spark/tailrace_spark/rowstate/row.py",
        "if deletion != self.deletion and deletion is not None:",
        "if self.deletion is None and deletion is not None:",
    ),
    _bug(
        "a row deletion leaves the row marker",
        "spark/tailrace_spark/rowstate/row.py",
        "if self.marker is not None and self.marker.written <= covering.written:",
        "if self.marker is not None and self.marker.written < covering.written:",
    ),
    _bug(
        "a collection that is deleted keeps its elements of that microsecond",
        "spark/tailrace_spark/rowstate/row.py",
        "column.deletion = stronger(column.deletion, deleted.deletion)",
        "column.deletion = Deletion(deleted.deletion.written - 1, 0)",
    ),
    _bug(
        "a collection that is overwritten keeps its elements",
        "spark/tailrace_spark/rowstate/row.py",
        "column.deletion = stronger(column.deletion, deleted.deletion)",
        "column.deletion = None",
    ),
    _bug(
        "a row deletion takes along what is newer of a column that was deleted",
        "spark/tailrace_spark/rowstate/row.py",
        "if column.deletion is None and not column.cells:\n                del",
        "if column.deletion is None:\n                del",
    ),
    _bug(
        "a partition deletion leaves the static row",
        "spark/tailrace_spark/rowstate/deletions.py",
        "if clustering is None:\n            return self.deletion",
        "if clustering is None:\n            return None",
    ),
    _bug(
        "a range includes its end",
        "spark/tailrace_spark/rowstate/deletions.py",
        "if candidate.end is None or clustering < candidate.end:",
        "if candidate.end is None or clustering <= candidate.end:",
    ),
    _bug(
        "a range excludes its start",
        "spark/tailrace_spark/rowstate/deletions.py",
        "index = bisect_right(self.ranges, clustering, key=_start) - 1",
        "index = bisect_right(self.ranges, clustering, key=_start) - 1\n"
        "        index -= index >= 0 and self.ranges[index].start == clustering",
    ),
    _bug(
        "of overlapping ranges the weakest holds",
        "spark/tailrace_spark/rowstate/deletions.py",
        "key=lambda index: _strength(ranges[index]), reverse=True",
        "key=lambda index: _strength(ranges[index])",
    ),
    _bug(
        "of two partition deletions the older holds",
        "spark/tailrace_spark/rowstate/deletions.py",
        "strongest = max(first, second, key=_strength)",
        "strongest = first if first.deletion is not None else second",
    ),
    # -- collections, counters, columns
    _bug(
        "equal decimals in other bytes are two elements of a set",
        "spark/tailrace_spark/rowstate/paths.py",
        'if cql_type.kind not in ("map", "set") or',
        'if cql_type.kind != "map" or',
    ),
    _bug(
        "a list is in the order of its paths' bytes",
        "spark/tailrace_spark/rowstate/visible.py",
        "return sorted(elements, key=lambda item: sortable(compared, item[0], False))",
        "return sorted(elements, key=lambda item: item[0])",
    ),
    _bug(
        "of a counter's shards the one with the least clock holds",
        "spark/tailrace_spark/rowstate/counters.py",
        "_turned(clock) + _turned(count)",
        "bytes(255 - one for one in clock) + _turned(count)",
    ),
    _bug(
        "a counter's shards are added up whatever their clocks",
        "spark/tailrace_spark/rowstate/counters.py",
        "_ID: Final = 16",
        "_ID: Final = 32",
    ),
    _bug(
        "a counter's tombstone holds by its time only",
        "spark/tailrace_spark/rowstate/visible.py",
        "return live if plan.counter and None not in live else None",
        "return {path: cell for path, cell in live.items() if path} if plan.counter else None",
    ),
    _bug(
        "cells from before their column was dropped are there again",
        "spark/tailrace_spark/rowstate/visible.py",
        "(dropped_at is None or cell.written > dropped_at)",
        "(dropped_at is None or cell.written > 0)",
    ),
    _bug(
        "a row is there by its marker alone",
        "spark/tailrace_spark/rowstate/visible.py",
        "exists = exists or cells is not None",
        "pass",
    ),
    _bug(
        "a row without cells is not there",
        "spark/tailrace_spark/rowstate/visible.py",
        "return live if exists else None",
        "return live if any(live) else None",
    ),
    # -- expiry and truncation
    _bug(
        "what has expired is not swept",
        "spark/tailrace_spark/rowstate/row.py",
        "elif cell.expires > after:",
        "elif cell.expires > after + 3600:",
    ),
    _bug(
        "a row whose marker expires is not swept",
        "spark/tailrace_spark/rowstate/row.py",
        "        return marker.expires\n",
        "        return None\n",
    ),
    _bug(
        "what has expired is shown",
        "spark/tailrace_spark/rowstate/visible.py",
        "return now is None or cell.ttl is None or cell.expires is None or now < cell.expires",
        "return True",
    ),
    _bug(
        "what has expired holds nothing back",
        "spark/tailrace_spark/rowstate/row.py",
        "column.cells[path] = cell if existing is None else newer_cell(existing, cell)",
        "column.cells[path] = cell if existing is None or (existing.ttl or 99) < 9 else newer_cell(existing, cell)",
    ),
    _bug(
        "a truncation takes what it left",
        "spark/tailrace_spark/rowstate/truncation.py",
        "elif source.position <= newest.upto:",
        "elif source.position > newest.upto:",
    ),
    _bug(
        "a truncation holds nothing back that comes later",
        "spark/tailrace_spark/merge/truncation.py",
        "and not truncations.covers(delivered.change, ring_delay)",
        "and not TruncationState().covers(delivered.change, ring_delay)",
    ),
    # -- the sink
    _bug(
        "a deletion of several rows is not kept for those that come later",
        "spark/tailrace_spark/sinks/sql/merge.py",
        "self._state.write_deletions(connection, key, stored, merged, now)",
        "self._state.write_deletions(connection, key, merged, merged, now)",
    ),
    _bug(
        "a range deletion takes rows away that are newer",
        "spark/tailrace_spark/sinks/sql/rows_table.py",
        "connection.execute(self.table.delete().where(area, ~newer))",
        "connection.execute(self.table.delete().where(area))",
    ),
    _bug(
        "of a plain change that meets nothing, cells of dropped columns are shown",
        "spark/tailrace_spark/sinks/sql/render.py",
        "if plan is None or written <= plan[1].dropped_at or cell.value is None:",
        "if plan is None or cell.value is None:",
    ),
)
"""In the order of what they are of. All of them are found by a few programs (`python -m tests.oracle.sharpness`)."""
