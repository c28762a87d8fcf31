"""Masks: what rules say of columns, that masked changes merge as changes do, and what is refused."""

from __future__ import annotations

import hmac
import pickle
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace_schemas.change import Cell, Change, ColumnDeletion, Deletion, Op
from tailrace_schemas.cql.values import split_key
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.masks import Masks, Rule
from tailrace_schemas.table import DroppedColumn, Table
from tailrace_spark.batch.delivery import Delivered, Piece, RecordId
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.properties import examples
from tests.support.shop import ORDERS, one_change
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

KEY = b"secret"
PEOPLE = table(
    {"country": "text", "id": "int"},
    {"day": "date"},
    {"note": "text"},
    {
        "age": "int", "tags": "set<text>", "phones": "list<text>", "scores": "map<text, int>", "ship": "addr",
        "point": "frozen<tuple<int, int>>",
    },
    keyspace="shop",
    name="people",
)  # fmt: skip
LOG = Log(PEOPLE)


def masks(**rules: str) -> Masks:
    """Rules by the names of PEOPLE's columns."""
    return Masks([Rule.parse(f"shop.people.{name}", text) for name, text in rules.items()], KEY)


def hashed(value: bytes) -> bytes:
    return hmac.new(KEY, value, "sha256").hexdigest().encode()


def types(of: Table) -> dict[str, str]:
    return {column.name: str(column.type) for column in (*of.key, *of.columns)}


def test_each_way() -> None:
    edits = {"tags": {"a": 1}, "phones": {"4": "b"}, "scores": {"k": 1}, "point": {"f0": 1, "f1": 2}}
    change = LOG.insert(("de", 7), (3,), 10, age=5, **edits)
    found = masks(
        age="mask", tags="hash", phones="hash", scores="mask", ship="drop", point="hash", country="hash",
        id="rename nr", note="rename remark", day="rename on",
    ).change(change)  # fmt: skip
    assert found is not None
    assert types(found.table) == {
        "country": "text", "nr": "int", "on": "date", "remark": "text", "age": "text", "phones": "list<text>",
        "point": "text", "scores": "map<text, text>", "tags": "set<text>",
    }  # fmt: skip
    assert [column.name for column in found.table.regular] == ["age", "phones", "point", "scores", "tags"]
    assert [column.kind for column in found.table.key] == [column.kind for column in PEOPLE.key]
    written = {(cell.column.name, cell.path): cell.value for cell in change.cells}
    [phone] = [path for name, path in written if name == "phones"]
    assert {(cell.column.name, cell.path): cell.value for cell in found.cells} == {
        ("age", None): b"***",
        ("tags", hashed(b"a")): b"",
        ("phones", phone): hashed(b"b"),
        ("scores", b"k"): b"***",
        ("point", None): hashed(written["point", None] or b""),
    }
    before = split_key([column.type for column in PEOPLE.partition_key], change.key or b"")
    after = split_key([column.type for column in found.table.partition_key], found.key or b"")
    assert after == (hashed(before[0]), before[1])
    same = ("op", "token", "clustering", "marker", "deletion", "digest", "source", "static")
    assert [getattr(found, name) for name in same] == [getattr(change, name) for name in same]
    assert [cell.written for cell in found.cells] == [cell.written for cell in change.cells]


@pytest.mark.parametrize(
    ("element", "added", "removed"),
    [("decimal", "000000010a", "0000000264"), ("frozen<addr>", "0000000178ffffffff", "0000000178")],
)
def test_an_element_of_a_set_is_removed_by_other_bytes_of_it(element: str, added: str, removed: str) -> None:
    """As 1.0 by 1.00, and a value of a user type by what it was before the type got a field."""
    of = table({"id": "int"}, {}, {}, {"tags": f"set<{element}>"}, keyspace="shop", name="people")
    [tags] = of.regular
    hidden, change = masks(tags="hash"), Log(of).update((1,), (), 10)

    def path(data: str, value: bytes | None) -> bytes | None:
        masked = hidden.change(replace(change, cells=(Cell(tags, bytes.fromhex(data), 10, None, None, value),)))
        assert masked is not None
        return masked.cells[0].path

    assert path(added, b"") == path(removed, None) != path("00", None)


def test_tombstones_stay_and_deletions_of_columns_follow_their_column() -> None:
    change = LOG.update(("de", 7), (3,), 10, age=None, note=None, tags={"=": 0}, phones={"=": 0})
    found = masks(age="hash", tags="rename labels", phones="drop").change(change)
    assert found is not None
    assert [(cell.column.name, cell.value) for cell in found.cells] == [("age", None), ("note", None)]
    assert [one.column.name for one in found.column_deletions] == ["labels"]


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (LOG.update(("de", 7), (3,), 10, age=5), False),
        (LOG.update(("de", 7), (3,), 10, age=None), False),
        (LOG.update(("de", 7), (3,), 10, tags={"=": 0}), False),
        (LOG.update(("de", 7), (3,), 10, age=5, point={"f0": 1, "f1": 2}), True),
        (LOG.insert(("de", 7), (3,), 10, age=5), True),
        (LOG.delete(("de", 7), (3,), 10), True),
        (LOG.delete_partition(("de", 7), 10), True),
        (LOG.delete_range(("de", 7), (1,), (2,), 10), True),
        (Change(op=Op.TRUNCATE, table=PEOPLE, token=0, key=None, deletion=Deletion(1, 1)), True),
    ],
    ids=lambda value: value.op.value if isinstance(value, Change) else str(value),
)
def test_a_change_of_which_nothing_is_left_is_none(change: Change, left: bool) -> None:
    assert (masks(age="drop", tags="drop").change(change) is not None) == left


def test_the_first_rule_that_matches_holds() -> None:
    rules = [
        Rule.parse("shop.p?ople.age", "rename years"),
        Rule.parse("*.*.a*", "drop"),
        Rule.parse("other.*.*", "drop"),
    ]
    found = Masks(rules).change(LOG.insert(("de", 7), (3,), 1, age=5))
    assert found is not None
    assert [column.name for column in found.table.regular] == ["phones", "point", "scores", "ship", "tags", "years"]
    assert len(types(found.table)) == len(types(PEOPLE))


def test_dropped_columns_are_masked_too() -> None:
    """What was written to one before it was dropped comes under the same name and type."""
    age = next(column for column in PEOPLE.regular if column.name == "age")
    without = tuple(column for column in PEOPLE.regular if column is not age)
    later = replace(PEOPLE, regular=without, dropped=(DroppedColumn(age, 50),))
    cells = LOG.update(("de", 7), (3,), 10, age=5).cells
    change = replace(LOG.insert(("de", 7), (3,), 10), table=later, cells=cells)
    found = masks(age="mask").change(change)
    assert found is not None
    assert [(one.column.name, str(one.column.type), one.dropped_at) for one in found.table.dropped] == [
        ("age", "text", 50)
    ]
    assert [(cell.column, cell.value) for cell in found.cells] == [(found.table.dropped[0].column, b"***")]


def test_a_column_may_take_the_name_of_a_dropped_one(tmp_path: Path) -> None:
    """What was written to it before the drop is its data, and what was written to the dropped one is not."""
    sales = table(
        {"id": "int"}, regular={"amount": "int"}, dropped={"total": ("int", 50)}, keyspace="shop", name="orders"
    )
    insert = Log(sales).insert((1,), (), 10, amount=5)
    gone = Cell(sales.dropped[0].column, None, 10, None, None, b"\0\0\0\7")
    found = Masks([Rule.parse("shop.orders.amount", "rename total")]).change(
        replace(insert, cells=(*insert.cells, gone))
    )
    assert found is not None
    assert found.table.dropped == ()
    assert shown(tmp_path / "sales.db", [found]) == [{"id": 1, "total": 5}]


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({"id": "drop"}, r"drop of shop\.people\.id: it identifies rows"),
        ({"country": "mask"}, r"mask of shop\.people\.country: it identifies rows"),
        ({"day": "hash"}, r"hash of shop\.people\.day: it orders rows"),
        ({"tags": "mask"}, r"mask of shop\.people\.tags: it is a set<text>"),
        ({"ship": "hash"}, r"hash of shop\.people\.ship"),
        ({"age": "rename id"}, r"shop\.people would have two columns called id"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_at_the_first_change(rules: dict[str, str], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        masks(**rules).change(LOG.delete_partition(("de", 7), 1))


@pytest.mark.parametrize(
    ("pattern", "text", "says"),
    [
        ("shop.people", "drop", "must be keyspace.table.column"),
        ("shop..age", "drop", "must be keyspace.table.column"),
        ("a.b.c", "hide", 'must be "drop", "mask", "hash" or "rename NAME", not \'hide\''),
        ("a.b.c", "rename", "a new name comes behind"),
        ("a.b.c", "drop it", "a new name comes behind"),
    ],
)
def test_a_rule_that_is_none_is_refused(pattern: str, text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Rule.parse(pattern, text)


# An independent way to the same: mask the rows that the SQL sink shows, instead of the changes that it is given.

RULES = [
    Rule.parse("shop.orders.note", "rename remark"),
    Rule.parse("shop.orders.name", "mask"),
    Rule.parse("shop.orders.tags", "drop"),
    Rule.parse("shop.orders.counts", "rename numbers"),
    Rule.parse("shop.orders.ship", "drop"),
]


def shown(path: Path, changes: list[Change]) -> list[dict[str, Any]]:
    """The rows of the orders that the SQL sink shows."""
    with closing(SqlSink(f"sqlite:///{path}")) as sink:
        write_here(sink, [Piece(tuple(Delivered(RecordId("t", 0, n), one) for n, one in enumerate(changes)))])
    engine = sa.create_engine(f"sqlite:///{path}")
    try:
        with engine.connect() as connection:
            return [dict(row) for row in connection.execute(sa.text("SELECT * FROM shop_orders")).mappings()]
    finally:
        engine.dispose()


def masked_row(row: dict[str, Any]) -> dict[str, Any]:
    """As the rules want it."""
    kept = {name: value for name, value in row.items() if name not in ("tags", "ship")}
    kept["remark"], kept["numbers"] = kept.pop("note"), kept.pop("counts")
    return {**kept, "name": None if kept["name"] is None else "***"}


_files: Callable[[], int] = count().__next__


@pytest.mark.slow
@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(one_change, min_size=1, max_size=12))
def test_masked_changes_make_the_masked_table(tmp_path: Path, changes: list[Change]) -> None:
    """But for rows that only exist by what is dropped: as in Cassandra, a table without these columns has none."""
    rules, anchor = Masks(RULES), Log(ORDERS)
    whole = [anchor.insert(("never",), (1, 1), 1), *changes]
    seen = [masked for one in whole if (masked := rules.change(one)) is not None]
    plain = shown(tmp_path / f"plain{_files()}.db", whole)
    found = shown(tmp_path / f"masked{_files()}.db", seen)
    keys = ("customer", "day", "number")
    wanted = {tuple(row[name] for name in keys): masked_row(row) for row in plain}
    for row in found:
        assert row == wanted.pop(tuple(row[name] for name in keys))
    for row in wanted.values():
        assert not any(value for name, value in row.items() if name not in keys), "a row of dropped columns alone"


def test_deletions_of_whole_columns_without_rules_are_themselves() -> None:
    change = LOG.update(("de", 7), (3,), 10, tags={"=": 0, "x": 1})
    found = Masks([]).change(change)
    assert found is not None
    assert all(isinstance(one, ColumnDeletion) for one in found.column_deletions)
    assert found == change


def test_all_tasks_of_a_process_show_a_table_as_one() -> None:
    """Spark sends masks with each task. What sinks keep of a table is kept by its identity."""
    sent = pickle.dumps(Masks([Rule.parse("shop.people.age", "mask")], KEY))
    first, second = (pickle.loads(sent).table(PEOPLE) for _ in range(2))  # noqa: S301 - our own
    assert first is second
    assert first == Masks([Rule.parse("shop.people.age", "mask")], KEY).table(PEOPLE)
