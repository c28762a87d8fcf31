"""Column subsets, which rows use to say which of a header's columns they have."""

from __future__ import annotations

import pytest

from tailrace.commitlog.descriptor import VERSIONS
from tailrace.commitlog.plans import HeaderPlan, table_plan_of
from tailrace.commitlog.reader import Reader
from tailrace_schemas.errors import CorruptError, TruncatedError
from tests.unit.commitlog.written import sized, vint
from tests.unit.tables import table

WIDE = table({"pk": "int"}, regular={f"c{place:03d}": "int" for place in range(128)})

CASES = [
    # columns, bytes, present, why
    (2, "00", [0, 1], "zero is everything"),
    (2, "02", [0], "bit 1: column 1 is missing"),
    (2, "01", [1], "bit 0: column 0 is missing"),
    (2, "03", [], "a row without cells"),
    (0, "00", [], "no columns"),
    (63, vint(2**63 - 2).hex(), [0], "the widest bitmap"),
    (64, "00", list(range(64)), "zero, also without bitmap"),
    (70, "44 03 41", [3, 65], "two present of 70"),
    (70, "23" + bytes(range(35, 70)).hex(), list(range(35)), "35 < 35 is false: the missing are listed"),
    (70, "24" + bytes(range(34)).hex(), list(range(34)), "34 < 35: the present are listed"),
    (71, "25" + bytes(range(34)).hex(), list(range(34)), "integer division: 34 < 35"),
    (71, "24" + bytes(range(35, 71)).hex(), list(range(35)), "35 < 35 is false"),
    (70, "46", [], "70 missing, nothing follows"),
]


def plan(columns: int) -> HeaderPlan:
    return HeaderPlan(WIDE.regular[:columns])


def reading(data: bytes) -> Reader:
    """A reader at the first byte of `data`."""
    reader = Reader()
    assert reader.open(b"\x01" + data, VERSIONS[8]) == 1
    return reader


@pytest.mark.parametrize(("columns", "text", "present", "why"), CASES)
def test_subsets(columns: int, text: str, present: list[int], why: str) -> None:
    data = bytes.fromhex(text)
    which = plan(columns)
    for _ in range(2):  # the second time from what was kept
        reader = reading(data + b"behind")
        assert list(reader.subset(which)) == present, why
        assert reader.at == 1 + len(data)
    for size in range(len(data)):
        with pytest.raises((TruncatedError, IndexError)):
            reading(data[:size]).subset(which)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (2, "04"),
        (63, vint(2**63).hex()),
        (70, "47"),
        (70, "44 03 46"),
        (70, "44 41 03"),
        (70, "44 03 03"),
        (64, vint(2**64 - 1).hex()),
    ],
)
def test_impossible_subsets(columns: int, text: str) -> None:
    with pytest.raises(CorruptError):
        reading(bytes.fromhex(text)).subset(plan(columns))


def test_a_header_list_is_resolved_once() -> None:
    shape = table_plan_of(WIDE)
    assert table_plan_of(WIDE) is shape
    listed = vint(2) + sized(b"c007") + sized(b"c003")
    reader = reading(listed + b"behind")
    first = reader.plan(shape)
    assert reader.at == 1 + len(listed)
    assert [column.name for column in first.columns] == ["c007", "c003"]
    assert reading(listed).plan(shape) is first
