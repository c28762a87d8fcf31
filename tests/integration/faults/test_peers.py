"""What other change feeds get wrong on the same inputs: each case on a live node, through a running agent."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Final
from uuid import uuid4

import pytest
from cassandra.cqltypes import DecimalType, DurationType, FloatType, InetAddressType, IntegerType
from cassandra.util import Duration

from tailrace.local import LocalCassandra, LocalKafka
from tailrace_schemas.change import Cell, Change, Op
from tests.integration.faults.trial import Trial, trial_on

BIG: Final = 123456789012345678901234567890
EXACT: Final = "123.456789012345678901234567890"


STATEMENTS: Final = (
    "INSERT INTO #.rows (p, c, s, v) VALUES (1, 1, 'static', 'row')",
    "UPDATE #.rows SET s = 'alone' WHERE p = 2",
    "UPDATE #.rows SET tags = tags + {'x'} WHERE p = 3 AND c = 1",
    "UPDATE #.rows SET tags = tags - {'x'} WHERE p = 3 AND c = 1",
    "UPDATE #.rows SET steps = [5] WHERE p = 4 AND c = 1",
    "UPDATE #.rows SET steps = steps + [6] WHERE p = 4 AND c = 1",
    "UPDATE #.rows SET steps = [4] + steps WHERE p = 4 AND c = 1",
    "UPDATE #.rows SET steps[1] = 7 WHERE p = 4 AND c = 1",
    "INSERT INTO #.rows (p, c, v) VALUES (5, 1, 'mortal') USING TTL 1000",
    "UPDATE #.counted SET n = n + 3 WHERE p = 6",
    "BEGIN BATCH DELETE FROM #.rows USING TIMESTAMP 1000 WHERE p = 11 AND c >= 0 AND c < 5;"
    " DELETE FROM #.rows USING TIMESTAMP 2000 WHERE p = 11 AND c >= 5 AND c < 9; APPLY BATCH",
    "BEGIN BATCH DELETE FROM #.rows USING TIMESTAMP 1000 WHERE p = 12 AND c = 1;"
    " INSERT INTO #.rows (p, c, v) VALUES (12, 1, 'new') USING TIMESTAMP 2000; APPLY BATCH",
    "BEGIN BATCH INSERT INTO #.rows (p, c, v) VALUES (13, 1, 'new') USING TIMESTAMP 2000;"
    " DELETE FROM #.rows USING TIMESTAMP 1000 WHERE p = 13 AND c > 0; APPLY BATCH",
    "INSERT INTO #.rows (p, c, v) VALUES (14, 1, 'behind')",
)


@pytest.fixture(scope="module")
def trial(cassandra: LocalCassandra, kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """Everything is written while one agent runs, which has published it."""
    prefix, keyspace, place = f"t{uuid4().hex[:12]}", f"ks_{uuid4().hex[:12]}", tmp_path_factory.mktemp("peers")
    with trial_on(cassandra, kafka, prefix, keyspace, place) as trial, trial.agent() as agent:
        agent.until_ready()
        types(trial)
        for statement in STATEMENTS:
            trial.run(statement)
        definitions(trial)
        trial.finish(agent)
        yield trial


def types(trial: Trial) -> None:
    """Tables of types, each written at once."""
    trial.ddl(
        "CREATE TABLE #.vectors (k int PRIMARY KEY, v vector<float, 3>) WITH cdc = true",
        writes=("INSERT INTO #.vectors (k, v) VALUES (1, [1.5, 2.5, 3.5])",),
    )
    trial.ddl(
        "CREATE TYPE #.addr (street text, zip int)",
        "CREATE TABLE #.typed (k int PRIMARY KEY, f frozen<addr>, m addr) WITH cdc = true",
        writes=(
            "INSERT INTO #.typed (k, f, m) VALUES (1, {street: 's', zip: 1}, {street: 't', zip: 2})",
            "UPDATE #.typed SET m.zip = 3 WHERE k = 1",
        ),
    )
    trial.ddl(
        "CREATE TABLE #.exact (k int PRIMARY KEY, i varint, d decimal, t duration, a inet) WITH cdc = true",
        writes=(f"INSERT INTO #.exact (k, i, d, t, a) VALUES (1, {BIG}, {EXACT}, 1mo2d3h, '10.0.0.1')",),
    )


def definitions(trial: Trial) -> None:
    """A column added, a table made, cdc switched on, off and on again, each time a write at once."""
    trial.ddl("ALTER TABLE #.bulk ADD w int", writes=("INSERT INTO #.bulk (p, w) VALUES (1, 7)",))
    trial.ddl("CREATE TABLE #.made (k int PRIMARY KEY) WITH cdc = true", writes=("INSERT INTO #.made (k) VALUES (1)",))
    for key, flag in enumerate(("true", "false", "true", "false", "true")):
        trial.ddl(f"ALTER TABLE #.plain WITH cdc = {flag}", writes=(f"INSERT INTO #.plain (p, v) VALUES ({key}, 'v')",))


def changes(trial: Trial, table: str) -> list[Change]:
    """A table's changes, in the order of the log."""

    def place(change: Change) -> tuple[int, int, int]:
        source = change.source
        assert source is not None
        return source.position.segment, source.position.offset, source.index

    return sorted((record.change for record in trial.records(table)), key=place)


def keys(trial: Trial, table: str) -> list[int]:
    """Their partition keys, ints."""
    return [int.from_bytes(change.key or b"", "big") for change in changes(trial, table)]


def cells(change: Change, column: str) -> list[Cell]:
    """Those of a column, by path."""
    return sorted((cell for cell in change.cells if cell.column.name == column), key=lambda cell: cell.path or b"")


def test_what_was_published_is_what_the_log_has(trial: Trial) -> None:
    verdict = trial.verdict()
    assert verdict.sound, str(verdict)


@pytest.mark.promise("others.vector", "others.user-types", "others.exact-values")
def test_every_type_that_others_lose_or_change(trial: Trial) -> None:
    """A table with a vector silences nothing; user types, frozen or not; numbers, durations and addresses exact."""
    [vector] = changes(trial, "vectors")
    assert [FloatType.deserialize(vector.cells[0].value[at : at + 4], 5) for at in (0, 4, 8)] == [1.5, 2.5, 3.5]  # type: ignore[index]  # live
    inserted, updated = changes(trial, "typed")
    assert [cell.value for cell in cells(inserted, "f")] == [b"\x00\x00\x00\x01s\x00\x00\x00\x04\x00\x00\x00\x01"]
    assert [(cell.path, cell.value) for cell in cells(inserted, "m")] == [
        (b"\x00\x00", b"t"),
        (b"\x00\x01", b"\x00\x00\x00\x02"),
    ]
    assert [(cell.path, cell.value) for cell in updated.cells] == [(b"\x00\x01", b"\x00\x00\x00\x03")]
    [exact] = changes(trial, "exact")
    values = {cell.column.name: cell.value for cell in exact.cells}
    assert IntegerType.deserialize(values["i"], 5) == BIG
    assert DecimalType.deserialize(values["d"], 5) == Decimal(EXACT)
    assert DurationType.deserialize(values["t"], 5) == Duration(1, 2, 3 * 3600 * 10**9)
    assert InetAddressType.deserialize(values["a"], 5) == "10.0.0.1"


@pytest.mark.promise("others.statics", "others.set-element", "others.lists", "others.counters", "others.ttl")
def test_statics_collections_and_times_to_live(trial: Trial) -> None:
    """Statics beside a row and alone; elements added and removed, appended, prepended, set and replaced are told
    apart; TTLs of cells and of the row's own marker; counters."""
    found: dict[int, list[Change]] = {}
    for change in changes(trial, "rows"):
        found.setdefault(int.from_bytes(change.key or b"", "big"), []).append(change)
    assert [(one.static, one.op, [cell.value for cell in one.cells]) for one in found[1] + found[2]] == [
        (True, Op.UPDATE, [b"static"]),
        (False, Op.INSERT, [b"row"]),
        (True, Op.UPDATE, [b"alone"]),
    ]
    assert [[(cell.path, cell.tombstone) for cell in one.cells] for one in found[3]] == [
        [(b"x", False)],
        [(b"x", True)],
    ]
    assert [bool(one.column_deletions) for one in found[4]] == [True, False, False, False]
    paths = [one.cells[0].path or b"" for one in found[4]]
    assert [cell.value for one in found[4] for cell in one.cells] == [n.to_bytes(4, "big") for n in (5, 6, 4, 7)]
    assert paths[3] == paths[0], "the element at 1 is the first that was written"
    assert len({*paths[:3]}) == 3
    # The time in a time uuid orders lists: prepended elements have one before all others.
    times = [time_of(path) for path in paths[:3]]
    assert times[2] < times[0] < times[1]
    [mortal] = found[5]
    assert mortal.marker is not None
    assert mortal.marker.ttl == mortal.cells[0].ttl == 1000
    assert mortal.marker.expires == mortal.cells[0].expires is not None
    [counted] = changes(trial, "counted")
    assert (counted.op, counted.cells[0].value[-8:]) == (Op.UPDATE, (3).to_bytes(8, "big"))  # type: ignore[index]  # live


def time_of(uuid: bytes) -> int:
    """The time in a version 1 uuid."""
    return int.from_bytes(uuid[6:8], "big") % 2**12 << 48 | int.from_bytes(uuid[4:6] + uuid[:4], "big")


@pytest.mark.promise("others.adjacent-ranges", "others.delete-and-insert", "others.older-range")
def test_deletions_beside_writes(trial: Trial) -> None:
    """Ranges that touch, which are one boundary in the log; a row deleted and written; an older range and a row."""
    found = [one for one in changes(trial, "rows") if one.key is not None and one.key > b"\x00\x00\x00\x0a"]
    assert [int.from_bytes(one.key or b"", "big") for one in found] == [11, 11, 12, 12, 13, 13, 14]
    ops = [one.op for one in found]
    assert ops == [Op.DELETE_RANGE, Op.DELETE_RANGE, Op.DELETE, Op.INSERT, Op.DELETE_RANGE, Op.INSERT, Op.INSERT]
    bounds = [(one.start, one.end) for one in found[:2]]
    assert [
        (start.values[0], start.inclusive, end.values[0], end.inclusive)
        for start, end in bounds
        if start is not None and end is not None
    ] == [(n.to_bytes(4, "big"), True, m.to_bytes(4, "big"), False) for n, m in ((0, 5), (5, 9))]
    assert [one.deletion and one.deletion.written for one in found[:2]] == [1000, 2000]


@pytest.mark.promise("agent.cdc-flag-of-its-place", "others.write-behind-ddl", "others.write-behind-cdc-off")
def test_a_write_right_behind_ddl(trial: Trial) -> None:
    """A column added, a table made, cdc switched on, off, and on again: the write that follows at once is published
    under the new definition, and by the new flag."""
    [widened] = changes(trial, "bulk")
    assert [(cell.column.name, cell.value) for cell in widened.cells] == [("w", b"\x00\x00\x00\x07")]
    assert keys(trial, "made") == [1]
    assert keys(trial, "plain") == [0, 2, 4]
