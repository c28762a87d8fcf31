"""The judgement of the fault tests: it notices a change that is lost, doubled, altered, invented or out of order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from tailrace_schemas.change import Cell, Change, Marker, Op, Source
from tailrace_schemas.digest import change_digest
from tailrace_schemas.position import Position
from tests.integration.faults.oracle import Fact, Links, Script, Verdict, compare, fact_of, logged
from tests.support.waiting import until
from tests.unit.capture.segments import SegmentWriter
from tests.unit.mutations import EPOCH, deletion, mutation
from tests.unit.tables import table

ROWS = table({"p": "int"}, {"c": "int"}, regular={"v": "text"}, name="rows")


def facts(count: int = 12) -> list[Fact]:
    """Of two tables, in two partitions of each, two to a mutation."""
    return [
        Fact(f"ks.{'ab'[at % 2]}", (7, 100 * (at // 2), at % 2), 2, at // 2 % 2, bytes([at]) * 32)
        for at in range(count)
    ]


def kinds(verdict: Verdict) -> dict[str, int]:
    """What is not empty of it."""
    every = ("lost", "doubled", "altered", "invented", "reordered")
    return {kind: len(getattr(verdict, kind)) for kind in every if getattr(verdict, kind)}


def test_the_same_is_sound_whatever_the_order_of_tables_and_partitions() -> None:
    log = facts()
    found = sorted(log, key=lambda fact: (fact.table, -fact.partition, fact.place))
    verdict = compare(log, found)
    assert verdict.sound
    assert (verdict.changes, kinds(verdict)) == (12, {})


def swapped(found: list[Fact]) -> list[Fact]:
    """Two of one partition of one table in the other order."""
    here = [at for at, fact in enumerate(found) if (fact.table, fact.partition) == ("ks.a", 0)]
    found[here[0]], found[here[1]] = found[here[1]], found[here[0]]
    return found


SPOILT: dict[str, tuple[Callable[[list[Fact]], list[Fact]], dict[str, int]]] = {
    "lost": (lambda found: found[:5] + found[6:], {"lost": 1}),
    "the last lost": (lambda found: found[:-1], {"lost": 1}),
    "all lost": (lambda _: [], {"lost": 12}),
    "doubled at once": (lambda found: [*found[:4], found[3], *found[4:]], {"doubled": 1}),
    "doubled later": (lambda found: [*found, found[3]], {"doubled": 1, "reordered": 1}),
    "three times": (lambda found: [*found[:4], found[3], found[3], *found[4:]], {"doubled": 1}),
    "altered": (lambda found: [replace(found[0], digest=b"other"), *found[1:]], {"altered": 1}),
    "in another partition": (lambda found: [*found[:-1], replace(found[-1], partition=2)], {"altered": 1}),
    "miscounted": (lambda found: [replace(found[0], count=3), *found[1:]], {"altered": 1}),
    "in another place": (
        lambda found: [*found[:-1], replace(found[-1], place=(8, 0, 0))],
        {"lost": 1, "invented": 1},
    ),
    "of another table": (
        lambda found: [*found[:-1], replace(found[-1], table="ks.c")],
        {"lost": 1, "invented": 1},
    ),
    "invented": (lambda found: [*found, replace(found[-1], place=(8, 0, 0))], {"invented": 1}),
    "reordered": (swapped, {"reordered": 1}),
}


@pytest.mark.parametrize("name", SPOILT)
def test_what_is_spoilt_is_noticed(name: str) -> None:
    spoil, noticed = SPOILT[name]
    verdict = compare(facts(), spoil(facts()))
    assert not verdict.sound
    assert kinds(verdict) == noticed
    for kind, count in noticed.items():
        assert f"{count} {kind}" in str(verdict)


def change(text: str = "x", written: int = 5) -> Change:
    """An insert that has its digest."""
    source = Source("h", "dc", Position(1, 7, 100), 0, 1)
    cell = Cell(ROWS.regular[0], None, written, None, None, text.encode())
    made = Change(op=Op.INSERT, table=ROWS, token=1, key=b"k", clustering=(b"c",), marker=Marker(5), cells=(cell,))
    return replace(made, source=source, digest=change_digest(made))


def test_a_fact_is_of_all_that_a_change_holds() -> None:
    """A value that is another under the digest of the first, a digest of another change, and the clock that is not."""
    first, other = change(), change("y")
    assert fact_of(first, 0) == fact_of(replace(first, source=replace(first.source, seen=99)), 0)  # type: ignore[type-var]  # it has one
    for spoilt in (other, replace(other, digest=first.digest), replace(first, digest=other.digest), change("x", 6)):
        assert fact_of(spoilt, 0) != fact_of(first, 0)


MARKS = table({"k": "int"}, name="marks", table_id=uuid4())
PLAIN = replace(table({"k": "int"}, name="plain", table_id=uuid4()), cdc=False)
BOTH = {one.id: one for one in (ROWS, MARKS, PLAIN)}


def mark(number: int) -> bytes:
    return deletion(MARKS, number.to_bytes(4, "big"))


def test_the_log_is_read_up_to_the_mark_under_the_definitions_of_its_place(tmp_path: Path) -> None:
    """From the second mark on `plain` has cdc, from the third not; other keyspaces' mutations are passed over."""
    one, two = SegmentWriter(tmp_path, 5), SegmentWriter(tmp_path, 6)
    SegmentWriter(tmp_path, 9)
    stranger = deletion(uuid4(), b"k")
    ends = one.write(deletion(ROWS, b"a"), deletion(PLAIN, b"a"), stranger, mark(1))
    ends += one.write(deletion(PLAIN, b"b"), mark(2), mutation((PLAIN, b"c", EPOCH), (ROWS, b"c", EPOCH)))
    later = two.write(mark(3), deletion(PLAIN, b"d"), deletion(ROWS, b"d"), mark(4), deletion(ROWS, b"behind"))
    eras = {0: BOTH, 2: {**BOTH, PLAIN.id: replace(PLAIN, cdc=True)}, 3: BOTH}
    paths = sorted((tmp_path / "commitlog").iterdir())
    found = logged(paths, Script(marks=MARKS.id, eras=eras), 4)
    assert [(fact.table, fact.place, fact.count) for fact in found] == [
        ("ks.rows", (5, ends[0], 0), 1),
        ("ks.marks", (5, ends[3], 0), 1),
        ("ks.marks", (5, ends[5], 0), 1),
        ("ks.plain", (5, ends[6], 0), 2),
        ("ks.rows", (5, ends[6], 1), 2),
        ("ks.marks", (6, later[0], 0), 1),
        ("ks.rows", (6, later[2], 0), 1),
        ("ks.marks", (6, later[3], 0), 1),
    ]
    assert {fact.partition for fact in found} <= {0, 1, 2}
    with pytest.raises(AssertionError, match="the mark 77 is not in the log"):
        logged(paths, Script(marks=MARKS.id, eras=eras), 77)


def test_links_outlive_what_they_were_made_of(tmp_path: Path) -> None:
    """Segments that are there, that come, and that go at once; names that are none are passed over."""
    SegmentWriter(tmp_path, 5)
    commitlog = tmp_path / "commitlog"
    with Links(commitlog, tmp_path / "links") as links:
        (commitlog / "other.txt").touch()
        later = SegmentWriter(tmp_path, 10)
        until((tmp_path / "links" / later.commitlog.name).exists, "a link of the later segment")
        later.commitlog.unlink()
        last = SegmentWriter(tmp_path, 7)
        names = [path.name for path in links.paths()]
        last.write(deletion(ROWS, b"a"))
    assert names == ["CommitLog-7-5.log", "CommitLog-7-7.log", "CommitLog-7-10.log"]
    assert (tmp_path / "links" / last.commitlog.name).read_bytes() == last.commitlog.read_bytes()
