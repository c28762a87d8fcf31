"""What a SQL sink has of a table, as it is held against the source, and what a repair takes away from it."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import codec
from tailrace_schemas.tokens import token
from tailrace_spark.comparison.rows import NO_ROWS, buckets_of, removal
from tailrace_spark.comparison.source import SinkTable, SourceRow, _newest, _shown
from tailrace_spark.merge.stored_row import STATIC
from tailrace_spark.rowstate.row import state_of
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.sql.sink import SqlSink
from tailrace_spark.snapshot.changes import ReadChanges
from tailrace_spark.snapshot.ranges import TokenRange
from tailrace_spark.snapshot.selection import columns_of, selection
from tests.support.expiry import SECOND
from tests.support.shop import WIDE
from tests.unit.spark.cassandra import Log, key_of
from tests.unit.spark.sinks.contract import Database, piece
from tests.unit.tables import table

LOG = Log(WIDE)
NOW = 1_000
RING = buckets_of([TokenRange()], 8)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """A SQLite file."""
    with closing(Database(f"sqlite:///{tmp_path / 'sink.db'}")) as database:
        yield database


@pytest.fixture
def sink(database: Database) -> Iterator[SqlSink]:
    with closing(SqlSink(database.url, clock=lambda: NOW)) as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.promise("compare.finds")
def test_each_row_and_static_row_is_found_in_the_bucket_of_its_token(sink: SqlSink) -> None:
    write_here(sink, [piece([*(LOG.insert((key,), (1,), key, v="a") for key in range(9)), LOG.static((3,), 7, s="x")])])
    target = SinkTable(sink, WIDE)
    digests = target.digests(RING, NOW)
    assert sum(count for count, _ in digests.values()) == 10
    for bucket in range(len(RING.ranges)):
        rows = target.rows(RING, {bucket}, NOW)
        assert len(rows) == digests.get(bucket, NO_ROWS)[0]
        assert {RING.of(token(key)) for key, _ in rows} <= {bucket}
    static = target.rows(RING, range(8), NOW)[key_of(WIDE, 3), STATIC]
    assert (static.newest, static.shown) == (7, (3,))


@pytest.mark.promise("compare.repairs")
def test_a_row_that_is_taken_away_comes_back_with_the_next_write(database: Database, sink: SqlSink) -> None:
    """Though the repair is long after that write."""
    write_here(sink, [piece([LOG.insert((1,), (1,), 5 * SECOND, v="a"), LOG.insert((1,), (2,), 5 * SECOND, v="b")])])
    target = SinkTable(sink, WIDE)
    keys = list(target.rows(RING, range(8), NOW))
    states = {key: row.state for key, row in target.stored(keys).items() if row.state is not None}
    assert len(states) == 2
    sink.amend(WIDE, {key: removal(None, state, NOW) for key, state in states.items()}, {})
    assert database.select("SELECT * FROM shop_wide") == []
    write_here(
        sink, [piece([LOG.update((1,), (1,), 5 * SECOND, v="c"), LOG.update((1,), (2,), 5 * SECOND + 1, v="d")])]
    )
    assert database.select("SELECT * FROM shop_wide") == [(1, 2, None, "d")]


@pytest.mark.promise("compare.repairs")
def test_a_value_that_is_taken_away_is_replaced_by_the_next_one(database: Database, sink: SqlSink) -> None:
    write_here(sink, [piece([LOG.insert((1,), (1,), 5 * SECOND, v="a")])])
    target = SinkTable(sink, WIDE)
    [(key, row)] = target.stored(target.rows(RING, range(8), NOW)).items()
    assert row.state is not None
    source = state_of(LOG.insert((1,), (1,), 5 * SECOND))
    sink.amend(WIDE, {key: removal(source, row.state, NOW)}, {})
    assert database.select("SELECT * FROM shop_wide") == [(1, 1, None, None)]
    write_here(sink, [piece([LOG.update((1,), (1,), 5 * SECOND + 1, v="b")])])
    assert database.select("SELECT * FROM shop_wide") == [(1, 1, None, "b")]


@pytest.mark.promise("compare.finds")
def test_keys_of_both_sides_are_shown_in_the_forms_of_json(sink: SqlSink) -> None:
    """As docs/change-json.md has them: JSON knows no NaN, and Python's b'...' is nobody's form."""
    keyed = table({"id": "double", "part": "blob"}, {"c": "double", "d": "blob"}, {"s": "text"}, {"v": "text"})
    nan = float("nan")
    write_here(sink, [piece([Log(keyed).insert((nan, b"\x00\xff"), (nan, b"\x01"), 1, v="a")])])
    [(key, row)] = SinkTable(sink, keyed).rows(RING, range(8), NOW).items()
    assert _shown(keyed, key[0], ()) == ("nan", "00ff")
    assert json.loads(json.dumps(row.shown, allow_nan=False)) == ["nan", "00ff", "NaN", "01"]  # SQLite has that as text


@pytest.mark.promise("compare.finds")
@pytest.mark.parametrize("release", [(4, 1), (5, 0)])
def test_a_value_whose_write_time_the_source_does_not_tell_is_not_on_its_way(release: tuple[int, int]) -> None:
    """It would be for as long as it is read, and its row was never listed."""
    of = table({"k": "int"}, regular={"m": "map<int, int>", "v": "int"})
    selected = selection(columns_of(of, None), release, times=True)
    asked, number = 1_714_000_000_000_000, struct.pack(">i", 7)
    values: dict[tuple[str, str], bytes] = {
        ("k", "value"): number,
        ("m", "value"): codec(of.regular[0].type).encode([{"key": 7, "value": 7}]),
        ("m", "writetime"): codec(CqlType("list", (CqlType("bigint"),), frozen=True)).encode([40]),
    }
    newest = []
    for written in (None, 50):
        if written is not None:
            values |= {("v", "value"): number, ("v", "writetime"): struct.pack(">q", written)}
        columns = [[values.get((item.column.name, item.kind))] for item in selected]
        [change] = ReadChanges(of, selected, "").changes(columns, asked)
        newest.append(_newest(SourceRow((b"", b""), change, state_of(change), asked)))
    assert newest == [0 if release < (5, 0) else 40, 50]
