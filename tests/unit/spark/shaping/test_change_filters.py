"""Filters of changes: what may be asked, what deletions do, tables that follow a part of the source."""

from __future__ import annotations

import pickle
import re
import sqlite3
import tomllib
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace_common.settings import Settings
from tailrace_schemas.change import Change, Deletion, Op
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import Delivered, Piece, RecordId
from tailrace_spark.shaping import Filters, shape_of, split_conditions
from tailrace_spark.shaping.change_filters import known_key_columns
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.registry import open_sink
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.properties import examples
from tests.support.shop import one_change
from tests.unit.spark.cassandra import Log
from tests.unit.tables import column, table

ORDERS = table(
    {"country": "text", "id": "int"},
    {"day": "date", "number": "int"},
    {"note": "text"},
    {"total": "int", "tags": "set<text>", "ship": "frozen<addr>"},
    keyspace="shop",
    name="orders",
)
LOG = Log(ORDERS)
ROOT = Path(__file__).resolve().parents[4]
DE, FR, BEFORE, SINCE = ("DE", 1), ("FR", 1), 19_000, 20_000
TRUNCATION = Change(op=Op.TRUNCATE, table=ORDERS, token=0, key=None, deletion=Deletion(5, 1))


def filters_of(where: str | dict[str, str], *, written: bool = False) -> Filters:
    """As the settings make them, and as tasks get them."""
    rows, conditions = split_conditions(where if isinstance(where, dict) else {"shop.*": where}, "stream.where")
    assert rows == ()
    return Filters(pickle.loads(pickle.dumps(conditions)), written=written)  # noqa: S301 - our own


def judged(filters: Filters, *changes: Delivered | Change) -> Piece:
    pieces = [
        one if isinstance(one, Delivered) else Delivered(RecordId("t", 0, number), one, message=b"m")
        for number, one in enumerate(changes)
    ]
    [piece] = filters.filtered([Piece(tuple(pieces))])
    assert sum(filters.left_out.values()) == len(changes) - len(piece.changes) - len(piece.dead_letters)
    return piece


def passed(where: str, *changes: Change, written: bool = False) -> list[int]:
    """Which of the changes a filter lets through, by number."""
    piece = judged(filters_of(where, written=written), *changes)
    assert piece.dead_letters == ()
    return [one.record_id.offset for one in piece.changes]


@pytest.mark.promise("shaping.unfit")
@pytest.mark.parametrize(
    ("where", "written", "says"),
    [
        ("country = = 'DE'", False, "is no expression of Spark SQL: what follows '=' does not fit"),
        ("land = 'DE'", False, "has no column land; it may ask for country, id, day, number, change"),
        ("contry = 'DE'", False, "did you mean country?"),
        ("total > 5", False, "of other columns a change has only what it writes"),
        ("columns.total > 5", False, "only a change log without images may ask for what a change writes"),
        ("total > 5", True, "ask for columns.total, which is what a change writes"),
        ("columns.tags IS NULL", True, "columns has note, ship, total"),
        ("columns.ship IS NULL", True, "columns.ship is frozen<addr>: a filter may ask for ascii"),
        ("change.operation = 'x'", False, "change has op, keyspace, table, written, ttl, static, origin"),
        ("country", False, "country is text: compare it with a text in quotes"),
        ("id = 'a'", False, "id is int: compare it with a number"),
        ("max(id) > 1", False, "MAX(id) is a function; a filter may have"),
        ("rand() < 0.5", False, "RAND() is a function"),
        ("day > current_date()", False, "is a function"),
        ("id IN (SELECT 1)", False, "has a query in it"),
        ("country = '${env:HOME}' OR country = ${env:HOME}", False, "has a variable in it, which nobody fills in"),
        ("id + 1 = 2", False, "for other expressions read tailrace_spark.changes()"),
    ],
)
def test_what_cannot_be_asked_is_refused(where: str, written: bool, says: str) -> None:
    with pytest.raises(SettingsError) as refused:
        filters_of(where, written=written).check(ORDERS)
    assert says in str(refused.value)
    assert 'stream.where "shop.*"' in str(refused.value)


PART = "country = 'DE' AND day >= DATE'2024-10-04'"  # which is day 20,000


@pytest.mark.promise("shaping.deletions")
@pytest.mark.parametrize(
    ("change", "known", "through"),
    [
        (LOG.insert(DE, (SINCE, 1), 5), 4, True),
        (LOG.insert(DE, (BEFORE, 1), 5), 4, False),
        (LOG.insert(FR, (SINCE, 1), 5), 4, False),
        (LOG.delete(DE, (BEFORE, 1), 5), 4, False),
        (LOG.static(DE, 5, note="n"), 2, True),
        (LOG.static(FR, 5, note="n"), 2, False),
        (LOG.delete_partition(DE, 5), 2, True),
        (LOG.delete_partition(FR, 5), 2, False),
        (LOG.delete_range(DE, (BEFORE,), (SINCE,), 5), 2, True),
        (LOG.delete_range(DE, (), (SINCE,), 5), 2, True),
        (LOG.delete_range(DE, (BEFORE,), (BEFORE,), 5), 3, False),
        (LOG.delete_range(DE, (BEFORE, 1), (BEFORE, 2), 5), 3, False),
        (LOG.delete_range(DE, (BEFORE, 1), (BEFORE, 1), 5), 4, False),
        (LOG.delete_range(FR, (BEFORE,), (SINCE,), 5), 2, False),
        (TRUNCATION, 0, True),
    ],
)
def test_what_cannot_be_judged_goes_through(change: Change, known: int, through: bool) -> None:
    assert known_key_columns(change) == known
    assert passed(PART, change) == ([0] if through else [])


def test_a_table_without_clustering_columns_is_known_whole_by_its_partition_key() -> None:
    plain = Log(table({"id": "int"}, regular={"v": "text"}))
    assert [known_key_columns(one) for one in (plain.insert((1,), (), 5), plain.delete_partition((1,), 5))] == [1, 1]


def test_a_name_may_be_in_other_letters() -> None:
    changes = [LOG.insert(DE, (SINCE, 1), 5), LOG.insert(FR, (SINCE, 1), 5), LOG.delete_partition(FR, 5), TRUNCATION]
    assert passed("COUNTRY = 'DE'", *changes) == [0, 3]
    assert passed("Country = 'DE' AND `Change`.OP <> 'truncate'", *changes) == [0]


def test_a_key_column_hides_what_is_called_like_it() -> None:
    odd = table({"change": "int"}, {"Columns": "int"}, regular={"v": "int"}, keyspace="shop")
    assert passed("change = 1 AND columns > 1", Log(odd).insert((1,), (2,), 5, v=3), written=True) == [0]
    with pytest.raises(SettingsError, match=r"has no column change\.op"):
        filters_of("change.op = 'insert'").check(odd)


@pytest.mark.promise("shaping.filtered-table")
def test_null_is_not_true_where_the_value_is_known() -> None:
    assert passed("day IS NULL", LOG.insert(DE, (SINCE, 1), 5), LOG.delete_partition(DE, 5)) == [1]
    assert passed("NOT (country = 'DE' OR change.ttl > 1)", LOG.insert(FR, (SINCE, 1), 5)) == []


def test_a_filter_may_ask_what_kind_of_change_it_is() -> None:
    changes = [LOG.insert(DE, (1, 2), 2_000_005), LOG.static(DE, 6, note="n"), TRUNCATION]
    assert passed("change.op = 'insert' OR change.op = 'truncate'", *changes) == [0, 2]
    assert passed("change.static", *changes) == [1]
    assert passed("change.written > TIMESTAMP'1970-01-01 00:00:02.000004Z'", *changes) == [0]
    assert passed("change.written > TIMESTAMP'1970-01-01 00:00:02.000005Z'", *changes) == []
    assert passed("change.origin = 'log' AND change.ttl IS NULL", *changes) == [0, 1]
    assert passed("change.keyspace LIKE 'sh%' AND change.table = 'orders'", *changes) == [0, 1, 2]


@pytest.mark.parametrize("at", [-(2**63) + 1, -1, 2**63 - 1])
def test_any_write_time_can_be_asked_for(at: int) -> None:
    later = at > 0
    assert passed("change.written > TIMESTAMP'1970-01-01 00:00:00Z'", LOG.insert(DE, (2**31 - 1, 1), at)) == [0] * later


def test_filters_of_a_log_may_ask_for_what_a_change_writes() -> None:
    writes = [LOG.insert(DE, (1, 1), 5, total=9), LOG.update(DE, (1, 1), 6, total=1), LOG.delete(DE, (1, 1), 7)]
    assert passed("columns.total > 5", *writes, written=True) == [0]
    assert passed("columns.total > 5 OR change.op LIKE 'delete%'", *writes, written=True) == [0, 2]
    assert passed("columns.total IS NULL", *writes, LOG.update(DE, (1, 1), 6, total=None), written=True) == [2, 3]


@pytest.mark.parametrize("where", ["columns.v < X'FF'", "columns.v = X'616263'"])
def test_a_column_that_was_added_again_as_another_type_is_read_as_the_newest(where: str) -> None:
    was, regular = ({"v": "text"}, {"v": "blob"})
    older = Log(table({"id": "int"}, regular=was, keyspace="shop")).insert((1,), (), 10, v="abc")
    newest = table({"id": "int"}, regular=regular, dropped={"v": ("text", 50)}, keyspace="shop")
    filters = filters_of(where, written=True)
    filters.check(newest, 2)
    piece = judged(filters, Delivered(RecordId("t", 0, 0), older, announced=1))
    assert (len(piece.changes), piece.dead_letters) == (1, ())


def test_of_what_is_no_value_of_its_column_the_rest_goes_on() -> None:
    """The reason has none of the values."""
    bad = replace(LOG.insert(DE, (1, 1), 5), key=b"\0\6secret\0\0\2\0\1\0")
    piece = judged(filters_of("id > 0"), LOG.insert(DE, (1, 1), 5), bad)
    assert [one.record_id.offset for one in piece.changes] == [0]
    [letter] = piece.dead_letters
    assert letter.reason == "stream.where cannot be evaluated of it: a value is none of its column's type"
    assert letter.message == b"m"


@pytest.mark.promise("shaping.unfit")
def test_changes_of_a_table_that_does_not_fit_are_dead_letters_and_the_others_go_on() -> None:
    other = Log(table({"key": "int"}, keyspace="shop", name="other", table_id=uuid4()))
    free = Log(table({"key": "int"}, keyspace="free", table_id=uuid4()))
    filters = filters_of({"shop.*": "country = 'DE'", "none.*": "x = 1"})
    piece = judged(filters, LOG.insert(DE, (1, 1), 5), other.insert((1,), (), 5), free.insert((1,), (), 5))
    assert [one.record_id.offset for one in piece.changes] == [0, 2]
    [letter] = piece.dead_letters
    assert 'shop.other: stream.where "shop.*": "country = \'DE\'": shop.other has no column country' in letter.reason
    assert filters.unmatched([ORDERS]) == ["none.*"]


def test_a_key_column_has_the_name_of_the_newest_definition() -> None:
    renamed = replace(ORDERS, partition_key=(column("land", "text", ORDERS.key[0].kind, 0), ORDERS.key[1]))
    newer = Delivered(RecordId("t", 0, 0), Log(renamed).insert(DE, (1, 1), 5), announced=2)
    older = [Delivered(RecordId("t", 0, at), LOG.insert(key, (1, 1), 6), announced=1) for at, key in ((1, DE), (2, FR))]
    piece = judged(filters_of("land = 'DE'"), newer, *older)
    assert [one.record_id.offset for one in piece.changes] == [0, 1]

    started = filters_of("land = 'DE'")
    started.check(renamed, 2)
    piece = judged(started, *older)
    assert [one.record_id.offset for one in piece.changes] == [1], "what was written before the column was renamed"

    met_later = judged(filters_of("land = 'DE'"), *older, newer)
    assert [one.record_id.offset for one in met_later.changes] == [0]
    assert len(met_later.dead_letters) == 2

    filters = filters_of("land = 'DE'")
    for delivered, passes in ((older[0], False), (newer, True), (older[0], True)):
        assert bool(judged(filters, delivered).changes) is passes, "an earlier definition gets the later one's names"


def test_the_documents_example_says_what_it_says_of_deletions() -> None:
    example, *_, route = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "shaping.md").read_text("utf-8"), re.DOTALL)
    assert Settings.model_validate(tomllib.loads(route)).stream_sink()[0] == "germany"
    stream = {**tomllib.loads(example)["stream"], "hash_key": "secret"}
    del stream["hash_key_file"]
    options = Settings.model_validate({"stream": stream}).stream
    orders = table(
        {"country": "text", "id": "int"}, {"day": "date"}, {}, {"email": "text", "total": "int"},
        keyspace="shop", name="orders",
    )  # fmt: skip
    log, summer, winter = Log(orders), 20_240, 20_500  # June 2025 and February 2026
    with closing(SqlSink("sqlite://")) as sink:
        shape = shape_of(options, sink)
    assert shape is not None
    shape.check([(0, orders), (1, table({"id": "int"}, keyspace="shop", name="access_log", table_id=uuid4()))])
    changes = [
        log.insert(DE, (winter,), 5, email="ann@shop", total=7),
        log.delete_partition(DE, 5),
        log.delete_range(DE, (summer,), (winter,), 5),
        log.delete_partition(FR, 5),
        log.delete_range(FR, (summer,), (winter,), 5),
        log.delete_range(DE, (summer,), (summer,), 5),
        Change(op=Op.TRUNCATE, table=orders, token=0, key=None, deletion=Deletion(5, 1)),
    ]
    piece = Piece(tuple(Delivered(RecordId("t", 0, number), one) for number, one in enumerate(changes)))
    [found] = shape.shaped([piece])
    assert [one.record_id.offset for one in found.changes] == [0, 1, 2, 6]
    assert [cell.column.name for cell in found.changes[0].change.cells] == ["email", "total_eur"]


def test_where_rows_are_made_of_changes_no_filter_may_ask_for_what_one_writes(tmp_path: Path) -> None:
    """Else rows before and after would lack what the filter left out."""
    where = {"where": {"shop.*": "columns.total > 5"}}
    for images, fits in ((None, True), (f"sqlite:///{tmp_path}/images.db", False)):
        section = {"type": "console", **({} if images is None else {"images": images})}
        options = Settings.model_validate({"stream": where, "sink": {"out": section}})
        with closing(open_sink("out", options.sink["out"], "tailrace")) as sink:
            shape = shape_of(options.stream, sink)
            assert shape is not None
            with nullcontext() if fits else pytest.raises(SettingsError, match=r"columns\.total"):
                shape.check([(0, ORDERS)])


# Independent ways to the same: SQLite's own logic, and its WHERE over the tables that follow everything.

ATOMS = [
    "country = 'DE'", "country NOT IN ('DE', 'AT')", "country LIKE '_E%'", "country NOT LIKE 'd%'", "id > 1", "3 >= id",
    "id <> 2.5", "id NOT BETWEEN 1 AND 2", "columns.total = 5", "columns.total IN (1, 5)", "columns.total IS NULL",
    "columns.total IS NOT NULL", "columns.note LIKE '%\\%%'", "columns.note >= 'b'", "TRUE",
]  # fmt: skip
conditions = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT {}".format, inner),
    ),
    max_leaves=8,
)
VALUES = st.tuples(
    st.sampled_from(["DE", "de", "AT", "XE-", ""]),
    st.integers(0, 4),
    st.sampled_from([None, 1, 5, -(2**31)]),
    st.sampled_from([None, "a", "b%", "bc", "é"]),
)
NOTED = table({"country": "text", "id": "int"}, regular={"total": "int", "note": "text"}, keyspace="shop", name="noted")


@pytest.mark.promise("shaping.filtered-table")
@settings(max_examples=examples(100))
@given(conditions, st.lists(VALUES, min_size=1, max_size=8))
def test_what_passes_is_what_sql_finds(where: str, rows: list[tuple[str, int, int | None, str | None]]) -> None:
    changes = [Log(NOTED).insert((country, id), (), 5, total=total, note=note) for country, id, total, note in rows]
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("PRAGMA case_sensitive_like = on")
        database.execute("CREATE TABLE t (at INT, country TEXT, id INT, total INT, note TEXT)")
        database.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", [(at, *row) for at, row in enumerate(rows)])
        sql = re.sub(r"(LIKE '[^']*')", r"\1 ESCAPE '\\'", where.replace("columns.", ""))
        wanted = [at for (at,) in database.execute(f"SELECT at FROM t WHERE {sql} ORDER BY at")]
    assert passed(where, *changes, written=True) == wanted


CONDITIONS = [
    ("number = 1", "number = 1"),
    ("day = DATE'1970-01-02' AND customer = 'k'", "day = '1970-01-02'"),
    ("NOT (number > 1 AND day < DATE'1970-01-03')", "NOT (number > 1 AND day < '1970-01-03')"),
    ("customer = 'nobody' AND number = 1", "1 = 0"),
    ("change.op IS NOT NULL AND number NOT BETWEEN 2 AND 3", "number NOT BETWEEN 2 AND 3"),
]
_files: Callable[[], int] = count().__next__


def shown(path: Path, piece: Piece, where: str) -> list[dict[str, Any]]:
    """The rows that the SQL sink shows."""
    with closing(SqlSink(f"sqlite:///{path}")) as sink:
        write_here(sink, [piece])
    engine = sa.create_engine(f"sqlite:///{path}")
    try:
        with engine.connect() as connection:
            if not sa.inspect(connection).has_table("shop_orders"):
                return []
            query = f"SELECT * FROM shop_orders WHERE day IS NOT NULL AND ({where}) ORDER BY day, number"
            return [dict(row) for row in connection.execute(sa.text(query)).mappings()]
    finally:
        engine.dispose()


@pytest.mark.slow
@pytest.mark.promise("shaping.filtered-table")
@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(one_change, min_size=8, max_size=20), st.sampled_from(CONDITIONS))
def test_a_table_of_filtered_changes_is_the_filtered_table(
    tmp_path: Path, changes: list[Change], condition: tuple[str, str]
) -> None:
    piece = Piece(tuple(Delivered(RecordId("t", 0, at), one) for at, one in enumerate(changes)))
    filtered = judged(filters_of({"shop.orders": condition[0]}), *piece.changes)
    assert filtered.dead_letters == ()
    wanted = shown(tmp_path / f"{_files()}.db", piece, condition[1])
    assert shown(tmp_path / f"{_files()}.db", filtered, "1 = 1") == wanted


def test_a_definition_is_compared_by_identity_and_kept() -> None:
    """Tables that are equal, and others, one after another: none has the place of one that has gone."""
    filters = filters_of("country = 'DE'")
    for number in range(50):
        fresh: Table = replace(ORDERS, name=f"t{number}", id=uuid4())
        assert len(judged(filters, Log(fresh).insert(FR, (1, 1), 5)).changes) == 0
