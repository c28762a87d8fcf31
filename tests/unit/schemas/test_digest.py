"""The digest: golden vectors, and that each part of a change counts in it."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from tailrace_schemas.change import Bound, Cell, Change, ColumnDeletion, Deletion, Marker, Op
from tailrace_schemas.digest import change_digest, mutation_digest
from tests.unit.tables import TABLE_ID, table

TABLE = table({"pk": "int"}, {"ck": "text"}, {"s": "text"}, {"v": "text", "m": "map<text, int>"})
V = next(c for c in TABLE.columns if c.name == "v")
M = next(c for c in TABLE.columns if c.name == "m")
INSERT = Change(
    op=Op.INSERT,
    table=TABLE,
    token=-4069959284402364209,
    key=b"\0\0\0\1",
    clustering=(b"a",),
    marker=Marker(1700000000000001),
    cells=(Cell(V, None, 1700000000000001, None, None, b"hello"),),
)
RANGE = Change(
    op=Op.DELETE_RANGE,
    table=TABLE,
    token=1,
    key=b"\0\0\0\2",
    deletion=Deletion(1700000000000009, 1795246989),
    start=Bound((b"d",), False),
    end=Bound((b"m",), True),
)


def _u32(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _i64(value: int) -> bytes:
    return _u32(value.to_bytes(8, "big", signed=True))


ABSENT = b"\xff\xff\xff\xff"


def test_the_layout_is_the_contracts() -> None:
    """The bytes under the hash, written out by hand."""
    at = _i64(1700000000000001)
    expected = b"".join(
        [
            TABLE_ID.bytes, b"\0", _u32(b"\0\0\0\1"), _u32(_u32(b"a")),
            at, ABSENT, ABSENT,  # marker
            ABSENT, ABSENT,  # deletion
            _u32(b"v"), ABSENT, at, ABSENT, ABSENT, _u32(b"\0"), _u32(b"hello"),
        ]
    )  # fmt: skip
    assert change_digest(INSERT) == hashlib.blake2b(expected, digest_size=16).digest()


@pytest.mark.promise("agent.digest")
@pytest.mark.parametrize(
    ("change", "golden"),
    [
        (INSERT, "ca1bf64812aea9f8809c8b4c817ea2a8"),
        (RANGE, "313926f5e6ab593e2f1df3d4fa37a03e"),
        (
            replace(INSERT, op=Op.UPDATE, marker=None, column_deletions=(ColumnDeletion(M, Deletion(5, 6)),)),
            "45b8d4ef8beece564c77d0aa89f5b55c",
        ),
    ],
)
def test_golden_vectors(change: Change, golden: str) -> None:
    assert change_digest(change).hex() == golden


def test_every_part_counts() -> None:
    changes = [
        INSERT,
        RANGE,
        replace(INSERT, op=Op.UPDATE),
        replace(INSERT, key=b"\0\0\0\2"),
        replace(INSERT, clustering=(b"b",)),
        replace(INSERT, clustering=None),
        replace(INSERT, marker=None),
        replace(INSERT, marker=Marker(1700000000000001, 5, 6)),
        replace(INSERT, deletion=Deletion(1, 2)),
        replace(INSERT, cells=()),
        replace(INSERT, cells=(replace(INSERT.cells[0], value=None),)),
        replace(INSERT, cells=(replace(INSERT.cells[0], value=b""),)),
        replace(INSERT, cells=(replace(INSERT.cells[0], path=b""),)),
        replace(INSERT, cells=(replace(INSERT.cells[0], column=M),)),
        replace(INSERT, cells=(replace(INSERT.cells[0], ttl=1, expires=2),)),
        replace(INSERT, column_deletions=(ColumnDeletion(M, Deletion(1, 2)),)),
        replace(RANGE, start=Bound((b"d",), True)),
        replace(RANGE, end=Bound((), True)),
    ]
    assert len({change_digest(change) for change in changes}) == len(changes)


def test_the_order_of_cells_does_not_count() -> None:
    cells = (INSERT.cells[0], Cell(M, b"k", 1, None, None, b"\0\0\0\1"), Cell(M, b"a", 1, None, 3, None))
    one, two = replace(INSERT, cells=cells), replace(INSERT, cells=cells[::-1])
    assert change_digest(one) == change_digest(two)


def test_the_mutation_digest_is_over_the_changes_in_order() -> None:
    digests = [change_digest(INSERT), change_digest(RANGE)]
    assert mutation_digest(digests) == hashlib.blake2b(b"".join(digests), digest_size=16).digest()
    assert mutation_digest(digests) != mutation_digest(digests[::-1])
