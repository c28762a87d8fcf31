"""Small bugs of the row state and of the SQL sink, each of which the oracle has to notice."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import Breakage, Needs

_STATE: Final = "spark/tailrace_spark/rowstate"
_SINKS: Final = "spark/tailrace_spark/sinks"


def _bug(name: str, file: str, old: str, new: str) -> Breakage:
    promise = "the sink shows what SELECT answers"
    return Breakage(name=name, promise=promise, file=file, old=old, new=new, needs=Needs.NODE, reds=())


BUGS: Final[tuple[Breakage, ...]] = (
    # -- which of two cells, markers or deletions holds
    _bug(
        "a deletion spares what was written at its microsecond",
        f"{_STATE}/cells.py",
        "deletion is not None and written <= deletion.written",
        "deletion is not None and written < deletion.written",
    ),
    _bug(
        "a live cell holds over a tombstone of its time",
        f"{_STATE}/cells.py",
        "return ends, tombstone, cell.expires",
        "return ends, not tombstone, cell.expires",
    ),
    _bug(
        "a plain cell holds over an expiring one of its time",
        f"{_STATE}/cells.py",
        "ends = tombstone or cell.ttl is not None",
        "ends = tombstone or cell.ttl is None",
    ),
    _bug(
        "the earlier expiry holds",
        f"{_STATE}/cells.py",
        "return ends, tombstone, cell.expires or 0",
        "return ends, tombstone, -(cell.expires or 0)",
    ),
    _bug(
        "the larger TTL holds",
        f"{_STATE}/cells.py",
        "cell.expires or 0, -(cell.ttl or 0)",
        "cell.expires or 0, cell.ttl or 0",
    ),
    _bug(
        "the smaller bytes hold",
        f"{_STATE}/cells.py",
        'cell.value or b"", cell.path or b""',
        'bytes(255 - one for one in cell.value or b""), cell.path or b""',
    ),
    _bug(
        "of equally old cells whichever came first holds",
        f"{_STATE}/cells.py",
        "return first if _cell_rank(first) >= _cell_rank(second) else second",
        "return first",
    ),
    _bug(
        "the older row marker holds",
        f"{_STATE}/cells.py",
        "return first if _marker_rank(first) >= _marker_rank(second) else second",
        "return second if _marker_rank(first) >= _marker_rank(second) else first",
    ),
    _bug(
        "a plain row marker holds over an expiring one of its time",
        f"{_STATE}/cells.py",
        "marker.written, marker.ttl is not None,",
        "marker.written, marker.ttl is None,",
    ),
    # -- what deletions cover
    _bug(
        "a row deletion is forgotten where another one came first",
        f"{_STATE}/row.py",
        "if deletion != self.deletion and deletion is not None:",
        "if self.deletion is None and deletion is not None:",
    ),
    _bug(
        "a row deletion leaves the row marker",
        f"{_STATE}/row.py",
        "if self.marker is not None and self.marker.written <= covering.written:",
        "if self.marker is not None and self.marker.written < covering.written:",
    ),
    _bug(
        "a collection that is deleted keeps its elements of that microsecond",
        f"{_STATE}/row.py",
        "column.deletion = stronger(column.deletion, deleted.deletion)",
        "column.deletion = Deletion(deleted.deletion.written - 1, 0)",
    ),
    _bug(
        "a collection that is overwritten keeps its elements",
        f"{_STATE}/row.py",
        "column.deletion = stronger(column.deletion, deleted.deletion)",
        "column.deletion = None",
    ),
    _bug(
        "a row deletion takes along what is newer of a column that was deleted",
        f"{_STATE}/row.py",
        "if column.deletion is None and not column.cells:\n                del",
        "if column.deletion is None:\n                del",
    ),
    _bug(
        "a partition deletion leaves the static row",
        f"{_STATE}/deletions.py",
        "if clustering is None:\n            return self.deletion",
        "if clustering is None:\n            return None",
    ),
    _bug(
        "a range includes its end",
        f"{_STATE}/deletions.py",
        "if part.end is None or clustering < part.end:",
        "if part.end is None or clustering <= part.end:",
    ),
    _bug(
        "a range excludes its start",
        f"{_STATE}/deletions.py",
        "at = bisect_right(self.ranges, clustering, key=_start) - 1",
        "at = bisect_right(self.ranges, clustering, key=_start) - 1\n"
        "        at -= at >= 0 and self.ranges[at].start == clustering",
    ),
    _bug(
        "of overlapping ranges the weakest holds",
        f"{_STATE}/deletions.py",
        "key=lambda at: _strength(parts[at]), reverse=True",
        "key=lambda at: _strength(parts[at])",
    ),
    _bug(
        "of two partition deletions the older holds",
        f"{_STATE}/deletions.py",
        "whole = max(first, second, key=_strength)",
        "whole = first if first.deletion is not None else second",
    ),
    # -- collections, counters, columns
    _bug(
        "equal decimals in other bytes are two elements of a set",
        f"{_STATE}/paths.py",
        'if cql_type.kind not in ("map", "set") or',
        'if cql_type.kind != "map" or',
    ),
    _bug(
        "a list is in the order of its paths' bytes",
        f"{_STATE}/visible.py",
        "return sorted(found, key=lambda item: sortable(compared, item[0], False))",
        "return sorted(found, key=lambda item: item[0])",
    ),
    _bug(
        "of a counter's shards the one with the least clock holds",
        f"{_STATE}/counters.py",
        "_turned(clock) + _turned(count)",
        "bytes(255 - one for one in clock) + _turned(count)",
    ),
    _bug(
        "a counter's shards are added up whatever their clocks",
        f"{_STATE}/counters.py",
        "_ID: Final = 16",
        "_ID: Final = 32",
    ),
    _bug(
        "a counter's tombstone holds by its time only",
        f"{_STATE}/visible.py",
        "return live if shown.counter and None not in live else None",
        "return {path: cell for path, cell in live.items() if path} if shown.counter else None",
    ),
    _bug(
        "cells from before their column was dropped are there again",
        f"{_STATE}/visible.py",
        "(dropped_at is None or cell.written > dropped_at)",
        "(dropped_at is None or cell.written > 0)",
    ),
    _bug(
        "a row is there by its marker alone",
        f"{_STATE}/visible.py",
        "there = there or cells is not None",
        "pass",
    ),
    _bug(
        "a row without cells is not there",
        f"{_STATE}/visible.py",
        "return live if there else None",
        "return live if any(live) else None",
    ),
    # -- expiry and truncation
    _bug(
        "what has expired is not swept",
        f"{_STATE}/row.py",
        "elif cell.expires > after:",
        "elif cell.expires > after + 3600:",
    ),
    _bug(
        "a row whose marker expires is not swept",
        f"{_STATE}/row.py",
        "        return marker.expires\n",
        "        return None\n",
    ),
    _bug(
        "what has expired is shown",
        f"{_STATE}/visible.py",
        "return at is None or cell.ttl is None or cell.expires is None or at < cell.expires",
        "return True",
    ),
    _bug(
        "what has expired holds nothing back",
        f"{_STATE}/row.py",
        "column.cells[path] = cell if known is None else newer_cell(known, cell)",
        "column.cells[path] = cell if known is None or (known.ttl or 99) < 9 else newer_cell(known, cell)",
    ),
    _bug(
        "a truncation takes what was written a second behind it",
        f"{_STATE}/truncation.py",
        "certain = _deletion(newest - int(ring_delay * _MICROS))",
        "certain = _deletion(newest + _MICROS)",
    ),
    _bug(
        "a truncation holds nothing back that comes later",
        f"{_SINKS}/sql_merge.py",
        "return stronger(self._truncations.erased, partition.covering(at))",
        "return partition.covering(at)",
    ),
    # -- the sink
    _bug(
        "a deletion of several rows is not kept for those that come later",
        f"{_SINKS}/sql_merge.py",
        "self._state.write_deletions(connection, key, before, after, at)",
        "self._state.write_deletions(connection, key, after, after, at)",
    ),
    _bug(
        "a range deletion takes rows away that are newer",
        f"{_SINKS}/sql_shown.py",
        "connection.execute(self.table.delete().where(area, ~newer))",
        "connection.execute(self.table.delete().where(area))",
    ),
    _bug(
        "of a plain change that meets nothing, cells of dropped columns are shown",
        f"{_SINKS}/sql_render.py",
        "if plan is None or written <= plan[1].dropped_at or cell.value is None:",
        "if plan is None or cell.value is None:",
    ),
)
"""In the order of what they are of. All of them are found by a few programs (`python -m tests.oracle.sharpness`)."""
