"""Small bugs of the row state and of the SQL sink, each of which the oracle has to notice."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import Breakage, Needs
from tests.breakages.mutations import Mutation, argument, compare, constant, drop, give, insert, negate, replace, unwrap


def _bug(name: str, symbol: str, mutation: Mutation) -> Breakage:
    promise = "the sink shows what SELECT answers"
    return Breakage(name=name, promise=promise, symbol=symbol, mutation=mutation, reds=(), needs=Needs.NODE)


BUGS: Final[tuple[Breakage, ...]] = (
    # -- which of two cells, markers or deletions holds
    _bug(
        "a deletion spares what was written at its microsecond",
        "tailrace_spark.rowstate.cells:covers",
        compare("written <= deletion.written", "<"),
    ),
    _bug(
        "a live cell holds over a tombstone of its time",
        "tailrace_spark.rowstate.cells:_cell_rank",
        replace(
            "(ends, tombstone, ...)",
            "(ends, not tombstone, cell.expires or 0, -(cell.ttl or 0), cell.value or b'', cell.path or b'')",
        ),
    ),
    _bug(
        "a plain cell holds over an expiring one of its time",
        "tailrace_spark.rowstate.cells:_cell_rank",
        negate("cell.ttl is not None"),
    ),
    _bug(
        "the earlier expiry holds",
        "tailrace_spark.rowstate.cells:_cell_rank",
        replace("cell.expires or 0", "-(cell.expires or 0)"),
    ),
    _bug(
        "the larger TTL holds", "tailrace_spark.rowstate.cells:_cell_rank", unwrap("-(cell.ttl or 0)", "cell.ttl or 0")
    ),
    _bug(
        "the smaller bytes hold",
        "tailrace_spark.rowstate.cells:_cell_rank",
        replace("cell.value or b''", "bytes(255 - byte for byte in cell.value or b'')"),
    ),
    _bug(
        "of equally old cells whichever came first holds",
        "tailrace_spark.rowstate.cells:newer_cell",
        unwrap("first if _cell_rank(first) >= _cell_rank(second) else second", "first"),
    ),
    _bug(
        "the older row marker holds",
        "tailrace_spark.rowstate.cells:newer_marker",
        compare("_marker_rank(first) >= _marker_rank(second)", "<"),
    ),
    _bug(
        "a plain row marker holds over an expiring one of its time",
        "tailrace_spark.rowstate.cells:_marker_rank",
        negate("marker.ttl is not None"),
    ),
    # -- what deletions cover
    _bug(
        "a row deletion is forgotten where another one came first",
        "tailrace_spark.rowstate.row:RowState.absorb",
        replace("deletion != self.deletion", "self.deletion is None"),
    ),
    _bug(
        "a row deletion leaves the row marker",
        "tailrace_spark.rowstate.row:RowState.shadow",
        compare("self.marker.written <= covering.written", "<"),
    ),
    _bug(
        "a collection that is deleted keeps its elements of that microsecond",
        "tailrace_spark.rowstate.row:state_of",
        replace("stronger(...)", "Deletion(deleted.deletion.written - 1, 0)"),
    ),
    _bug(
        "a collection that is overwritten keeps its elements",
        "tailrace_spark.rowstate.row:state_of",
        constant("stronger(...)", None),
    ),
    _bug(
        "a row deletion takes along what is newer of a column that was deleted",
        "tailrace_spark.rowstate.row:RowState.shadow",
        drop("not column.cells"),
    ),
    _bug(
        "a partition deletion leaves the static row",
        "tailrace_spark.rowstate.deletions:PartitionState.covering",
        replace("if clustering is None: ...", "if clustering is None: return None"),
    ),
    _bug(
        "a range includes its end",
        "tailrace_spark.rowstate.deletions:PartitionState.covering",
        compare("clustering < candidate.end", "<="),
    ),
    _bug(
        "a range excludes its start",
        "tailrace_spark.rowstate.deletions:PartitionState.covering",
        insert("index -= index >= 0 and self.ranges[index].start == clustering", before="if index >= 0: ..."),
    ),
    _bug(
        "of overlapping ranges the weakest holds",
        "tailrace_spark.rowstate.deletions:_ranks",
        argument("sorted(...)", "reverse", None),
    ),
    _bug(
        "of two partition deletions the older holds",
        "tailrace_spark.rowstate.deletions:merge_partitions",
        replace("max(first, second, key=_strength)", "first if first.deletion is not None else second"),
    ),
    # -- collections, counters, columns
    _bug(
        "equal decimals in other bytes are two elements of a set",
        "tailrace_spark.rowstate.row:path_key",
        replace("cql_type.kind not in ('map', 'set')", "cql_type.kind != 'map'"),
    ),
    _bug(
        "a list is in the order of its paths' bytes",
        "tailrace_spark.rowstate.visible:_ordered.ordered",
        unwrap("sortable(compared, item[0], False)", "item[0]"),
    ),
    _bug(
        "of a counter's shards the one with the least clock holds",
        "tailrace_spark.rowstate.cells:shards",
        replace("_turned(clock)", "bytes(255 - byte for byte in clock)"),
    ),
    _bug("a counter's shards are added up whatever their clocks", "tailrace_spark.rowstate.cells:_ID", give("32")),
    _bug(
        "a counter's tombstone holds by its time only",
        "tailrace_spark.rowstate.visible:_live",
        replace(
            "live if plan.counter and None not in live else None",
            "{path: cell for path, cell in live.items() if path} if plan.counter else None",
        ),
    ),
    _bug(
        "cells from before their column was dropped are there again",
        "tailrace_spark.rowstate.visible:_lives",
        replace("cell.written > dropped_at", "cell.written > 0"),
    ),
    _bug(
        "a row is there by its marker alone",
        "tailrace_spark.rowstate.visible:VisibleColumns._live",
        drop("exists = exists or (cells is not None and not state.strict)"),
    ),
    _bug(
        "a row without cells is not there",
        "tailrace_spark.rowstate.visible:VisibleColumns._live",
        replace("live if exists else None", "live if any(live) else None"),
    ),
    # -- expiry and truncation
    _bug(
        "what has expired is not swept",
        "tailrace_spark.rowstate.row:RowState.next_expiry",
        replace("cell.expires > after", "cell.expires > after + 3600"),
    ),
    _bug(
        "a row whose marker expires is not swept",
        "tailrace_spark.rowstate.row:RowState.next_expiry",
        replace("return marker.expires if soonest is None else min(soonest, marker.expires)", "return soonest"),
    ),
    _bug("what has expired is shown", "tailrace_spark.rowstate.visible:_lasts", give("True")),
    _bug(
        "what has expired holds nothing back",
        "tailrace_spark.rowstate.row:RowState._absorb_column",
        replace("existing is None", "existing is None or (existing.ttl or 99) < 9"),
    ),
    _bug(
        "a truncation takes what it left",
        "tailrace_spark.rowstate.truncation:TruncationState.covers",
        compare("source.position <= newest.upto", ">"),
    ),
    _bug(
        "a truncation holds nothing back that comes later",
        "tailrace_spark.merge.batch_changes:truncate_batch",
        replace("truncations.covers", "TruncationState().covers"),
    ),
    # -- the sink
    _bug(
        "a deletion of several rows is not kept for those that come later",
        "tailrace_spark.sinks.sql.merge:TableMerge.merge",
        argument("self._state.write_deletions(...)", 2, "merged"),
    ),
    _bug(
        "a range deletion takes rows away that are newer",
        "tailrace_spark.sinks.sql.merge:VisibleTable.delete_older",
        argument("self.table.delete().where(area, ~newer)", 1, None),
    ),
    _bug(
        "of a plain change that meets nothing, cells of dropped columns are shown",
        "tailrace_spark.sinks.sql.row_builder:Renderer.plain_values",
        drop("written <= plan[1].dropped_at"),
    ),
)
"""In the order of what they are of. All of them are found by a few programs (`python -m tests.oracle.sharpness`)."""
