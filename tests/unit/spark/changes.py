"""Changes for tests: a few tables, hypothesis strategies over tiny domains so that ties are common."""

from __future__ import annotations

from hypothesis import strategies as st

from tailrace_schemas.change import Bound, Cell, Change, ColumnDeletion, Deletion, Marker, Op
from tailrace_schemas.streams import Assignment
from tailrace_schemas.table import Column, Table
from tailrace_spark.rowstate.row import RowState, state_of
from tests.unit.tables import table

_KEY = b"\x00\x00\x00\x00"
PLAIN = table({"p": "int"}, {"c": "int"}, {"s": "text", "sl": "list<int>"}, {"v": "int", "l": "list<int>", "w": "text"})
OF_ANY_BYTES = table(
    {"p": "int"}, {"c": "int"}, {"s": "blob", "sl": "list<blob>"}, {"v": "blob", "l": "list<blob>", "w": "blob"}
)

times = st.integers(0, 4)
markers = st.one_of(
    st.builds(Marker, times), st.builds(Marker, times, st.sampled_from([1, 2]), st.sampled_from([10, 11]))
)
deletions = st.builds(Deletion, times, st.sampled_from([10, 11]))
assignments = st.one_of(
    st.none(), st.builds(Assignment, st.integers(1, 2), st.sampled_from([bytes(15) + b"\x01", bytes(15) + b"\x11"]))
)


def column(of: Table, name: str) -> Column:
    """The non-key column of this name."""
    return next(c for c in of.columns if c.name == name)


def cells_of(target: Column) -> st.SearchStrategy[Cell]:
    """Live, expiring and tombstone cells of a column; elements of a multi-cell one have one of two paths."""
    paths = st.sampled_from([bytes(15) + b"\x01", bytes(15) + b"\x02"]) if target.type.multicell else st.none()
    values = st.sampled_from([b"\x00\x00\x00\x01", b"\xff\xff\xff\xff", b""])
    live = st.builds(Cell, st.just(target), paths, times, st.none(), st.none(), values)
    expiring = st.builds(
        Cell, st.just(target), paths, times, st.sampled_from([1, 2]), st.sampled_from([10, 11]), values
    )
    dead = st.builds(Cell, st.just(target), paths, times, st.none(), st.sampled_from([10, 11]), st.none())
    return st.one_of(live, expiring, dead)


def row_changes(
    of: Table = PLAIN, clustering: tuple[bytes, ...] | None = (b"\x00\x00\x00\x01",)
) -> st.SearchStrategy[Change]:
    """Changes of one row: marker, row deletion, cells and collection deletions, each there or not.

    Without `clustering` of the static row, which has neither a marker nor a deletion.
    """
    static = clustering is None
    columns = of.static if static else of.regular
    return st.builds(
        lambda marker, deletion, cells, deleted: Change(
            op=Op.DELETE if deletion else Op.INSERT if marker else Op.UPDATE,
            table=of,
            token=0,
            key=_KEY,
            clustering=clustering,
            static=static,
            marker=marker,
            deletion=deletion,
            cells=tuple(cells),
            column_deletions=tuple(deleted),
        ),
        st.none() if static else st.one_of(st.none(), markers),
        st.none() if static else st.one_of(st.none(), st.none(), deletions),
        st.lists(st.one_of([cells_of(c) for c in columns]), max_size=4),
        st.lists(
            st.builds(ColumnDeletion, st.sampled_from([c for c in columns if c.type.multicell]), deletions), max_size=1
        ),
    )


def partition_changes(of: Table = OF_ANY_BYTES, rows: int = 3) -> st.SearchStrategy[Change]:
    """Changes of one partition: of its static row and a few rows, of ranges of them, of all of it.

    The table has one clustering column, an int.
    """
    clusterings = [(number.to_bytes(4, "big"),) for number in range(rows)]
    bounds = st.builds(Bound, st.sampled_from([(), *clusterings]), st.booleans())
    ranges = st.builds(
        lambda deletion, start, end: Change(
            op=Op.DELETE_RANGE, table=of, token=0, key=_KEY, deletion=deletion, start=start, end=end
        ),
        deletions,
        bounds,
        bounds,
    )
    whole = st.builds(
        lambda deletion: Change(op=Op.DELETE_PARTITION, table=of, token=0, key=_KEY, deletion=deletion), deletions
    )
    one = st.one_of([row_changes(of, clustering) for clustering in clusterings])
    return st.one_of(one, one, one, row_changes(of, None), ranges, whole)


def absorbed(*changes: Change) -> RowState:
    """The state of a row after these changes of it."""
    state = RowState()
    for change in changes:
        state.absorb(state_of(change))
    return state
