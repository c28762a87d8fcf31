"""Changes for tests: a few tables, hypothesis strategies over tiny domains so that ties are common."""

from __future__ import annotations

from hypothesis import strategies as st

from tailrace_schemas.change import Cell, Change, ColumnDeletion, Deletion, Marker, Op
from tailrace_schemas.streams import Assignment
from tailrace_schemas.table import Column, Table
from tests.unit.tables import table

PLAIN = table({"p": "int"}, {"c": "int"}, {"s": "text", "sl": "list<int>"}, {"v": "int", "l": "list<int>", "w": "text"})

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


def row_changes(of: Table = PLAIN, clustering: tuple[bytes, ...] = (b"\x00\x00\x00\x01",)) -> st.SearchStrategy[Change]:
    """Changes of one row: marker, row deletion, cells and collection deletions, each there or not."""
    columns = of.regular
    return st.builds(
        lambda marker, deletion, cells, deleted: Change(
            op=Op.DELETE if deletion else Op.INSERT if marker else Op.UPDATE,
            table=of,
            token=0,
            key=b"\x00\x00\x00\x00",
            clustering=clustering,
            marker=marker,
            deletion=deletion,
            cells=tuple(cells),
            column_deletions=tuple(deleted),
        ),
        st.one_of(st.none(), markers),
        st.one_of(st.none(), st.none(), deletions),
        st.lists(st.one_of([cells_of(c) for c in columns]), max_size=4),
        st.lists(
            st.builds(ColumnDeletion, st.sampled_from([c for c in columns if c.type.multicell]), deletions), max_size=1
        ),
    )
