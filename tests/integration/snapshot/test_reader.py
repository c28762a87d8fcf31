"""`tailrace-snapshot` on real nodes: what it gives is what SELECT gives, by the driver's own reading of it."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from cassandra.cluster import Session
from cassandra.protocol import _ProtocolHandler
from cassandra.util import Date, Duration, OrderedMapSerializedKey, SortedSet, Time

from tailrace.local import LocalCassandra
from tailrace_schemas.avro import decode, entry_from_record
from tailrace_spark.snapshot import change_schemas, register
from tests.integration.agents import cql, create_keyspace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCALARS = {
    "ascii": "'a'", "bigint": "-5", "blob": "0xcafe", "boolean": "true", "date": "'2024-05-01'", "decimal": "1.50",
    "double": "1.5", "duration": "1mo2d3ns", "float": "2.5", "inet": "'10.0.0.1'", "int": "7", "smallint": "-7",
    "text": "'é'", "time": "'08:12:54.123456789'", "timestamp": "'2024-05-01T12:00:00.123Z'",
    "timeuuid": "2be43760-e57f-11f1-8599-73518cff440e", "tinyint": "-1", "uuid": "6f1d8a3a-9d34-4d1c-9a6f-0c3b1a7f0001",
    "varint": "123456789012345678901234567890",
}  # fmt: skip
NESTED = {
    "l": ("list<int>", "[3, 1, 3]"),
    "s": ("set<text>", "{'b', 'a'}"),
    "m": ("map<text, int>", "{'k': 1, 'j': 2}"),
    "u": ("addr", "{street: 'x', zip: 5}"),
    "fl": ("frozen<list<frozen<set<int>>>>", "[{1, 2}, {}]"),
    "fu": ("frozen<addr>", "{street: 'x'}"),
    "tu": ("frozen<tuple<int, text>>", "(1, 'one')"),
}


@dataclass(frozen=True)
class Source:
    """A node with a keyspace of the test's own, and Spark."""

    node: LocalCassandra
    session: Session
    keyspace: str
    spark: SparkSession
    elements: bool

    def frame(self, table: str, **options: object) -> DataFrame:
        return self.spark.read.format("tailrace-snapshot").options(**self.options(table, **options)).load()

    def options(self, table: str, **options: object) -> dict[str, str]:
        node = {"contact_points": self.node.address, "port": self.node.port, "ranges": 4, "consistency": "ONE"}
        return {name: str(value) for name, value in {**node, "path": f"{self.keyspace}.{table}", **options}.items()}

    def rows(self, table: str, **options: object) -> list[dict[str, Any]]:
        rows = [row.asDict(recursive=True) for row in self.frame(table, **options).collect()]
        return sorted(rows, key=in_order)

    def run(self, statement: str) -> list[Any]:
        return list(self.session.execute(statement.replace("KS.", f"{self.keyspace}.")))


@pytest.fixture
def source(node: LocalCassandra, keyspace_name: str, spark: SparkSession) -> Iterator[Source]:
    with cql(node) as session:
        # The driver's own reading in Python: its compiled one fails at lists with nulls, as TTLs of elements are.
        session.client_protocol_handler = _ProtocolHandler
        create_keyspace(session, keyspace_name)
        register(spark)
        release = session.execute("SELECT release_version FROM system.local").one()[0]
        yield Source(node, session, keyspace_name, spark, not release.startswith("4."))
        session.execute(f"DROP KEYSPACE {keyspace_name}")


def in_order(row: Mapping[str, Any]) -> tuple[Any, str]:
    return row.get("k", 0), str(row.get("c"))


def plain(value: Any) -> Any:
    """A value of the driver's as the DataFrame has it."""
    match value:
        case UUID() | Decimal():
            return str(value)
        case Date():
            return date.fromordinal(value.days_from_epoch + date(1970, 1, 1).toordinal())
        case Time():
            return value.nanosecond_time
        case Duration():
            return {"months": value.months, "days": value.days, "nanoseconds": value.nanoseconds}
        case OrderedMapSerializedKey():
            return [{"key": plain(key), "value": plain(element)} for key, element in value.items()]
        case SortedSet() | list():
            return [plain(element) for element in value]
        case tuple() if hasattr(value, "_asdict"):
            return {name: plain(field) for name, field in value._asdict().items()}
        case tuple():
            return {f"f{index}": plain(field) for index, field in enumerate(value)}
        case datetime() | int() | float() | str() | bytes() | None:
            return value
    raise TypeError(type(value))


def expected(source: Source, table: str, columns: Mapping[str, bool]) -> list[dict[str, Any]]:
    """SELECT's rows: values, and WRITETIME and TTL of the columns that have them."""
    timed = [name for name, has_times in columns.items() if has_times]
    selectors = ", ".join(
        [*columns, *[f"{kind}({name}) AS {kind}_{name}" for kind in ("writetime", "ttl") for name in timed]]
    )
    rows = []
    for row in source.run(f"SELECT {selectors} FROM KS.{table}"):
        values = {name: plain(value) for name, value in row._asdict().items()}
        shown = {name: str(values[name]) if name == "c_varint" and values[name] else values[name] for name in columns}
        rows.append(shown | {kind: {name: values[f"{kind}_{name}"] for name in timed} for kind in ("writetime", "ttl")})
    return sorted(rows, key=in_order)


def without_seconds(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in which a TTL is only one: seconds pass between two reads."""

    def lasting(ttl: Any) -> Any:
        return [lasting(element) for element in ttl] if isinstance(ttl, list) else ttl is not None

    return [row | {"ttl": {name: lasting(ttl) for name, ttl in row["ttl"].items()}, "raw": None} for row in rows]


def test_every_type_is_read_as_select_gives_it(source: Source) -> None:
    source.run("CREATE TYPE KS.addr (street text, zip int)")
    columns = {f"c_{kind}": (kind, literal) for kind, literal in SCALARS.items()} | NESTED
    source.run(
        "CREATE TABLE KS.t (k int, c text, st text STATIC, fs frozen<set<int>> STATIC, "
        f"{', '.join(f'{name} {kind}' for name, (kind, _) in columns.items())}, PRIMARY KEY (k, c))"
    )
    literals = ", ".join(literal for _, literal in columns.values())
    for key in range(12):
        source.run(
            f"INSERT INTO KS.t (k, c, st, fs, {', '.join(columns)}) "
            f"VALUES ({key}, 'c', 's{key}', {{{key}}}, {literals}) USING TIMESTAMP {1000 + key}"
        )
    source.run("INSERT INTO KS.t (k, c, c_text) VALUES (1, 'nulls and an empty text', '')")
    source.run(
        "UPDATE KS.t USING TTL 50000 SET s = s + {'z'}, m['k'] = 9, u.zip = null, c_int = 8 WHERE k = 2 AND c = 'c'"
    )
    source.run("INSERT INTO KS.t (k, st) VALUES (77, 'a partition without rows')")
    source.run("DELETE FROM KS.t WHERE k = 3")
    timed = {name: source.elements or name not in ("l", "s", "m", "u") for name in columns}
    rows = source.rows("t")
    columns_read = {"k": False, "c": False, "st": True, "fs": True, **timed}
    for row, selected in zip(without_seconds(rows), without_seconds(expected(source, "t", columns_read)), strict=True):
        assert [(name, row[name]) for name in selected if row[name] != selected[name]] == []
        assert row.keys() == selected.keys()
    assert len(rows) == 13
    assert all(row["raw"] is None for row in rows)
    [updated] = [row for row in rows if row["k"] == 2]
    assert 49_000 < updated["ttl"]["c_int"] <= 50_000


def test_changes_are_messages_that_readers_of_topics_decode(source: Source) -> None:
    source.run("CREATE TABLE KS.c (k int, c int, s text STATIC, v int, l list<int>, PRIMARY KEY (k, c))")
    for key in range(8):
        source.run(
            f"INSERT INTO KS.c (k, c, s, v, l) VALUES ({key}, 1, 's', {key}, [1, 2]) USING TIMESTAMP {1000 + key}"
        )
        source.run(f"INSERT INTO KS.c (k, c) VALUES ({key}, 2)")
    place = {"contact_points": source.node.address, "port": str(source.node.port), "table": f"{source.keyspace}.c"}
    entries = {key: entry_from_record(key, value) for key, value in change_schemas({**place, "prefix": "p"})}
    assert {entry.topic for entry in entries.values()} == {f"p.{source.keyspace}.c"}
    rows = source.frame("c", rows="changes", prefix="p").collect()
    changes = [decode(bytes(row.value), entries) for row in rows]
    assert [(row.op, row.token, bytes(row.digest)) for row in rows] == [
        ("read", change.token, change.digest) for change in changes
    ]
    assert len({bytes(row.key) for row in rows}) == 8
    assert sorted((change.static, change.marker is None, len(change.cells)) for change in changes) == [
        *[(False, False, 0)] * 8, *[(False, True, 3)] * 8, *[(True, True, 1)] * 8,
    ]  # fmt: skip
    source.run("CREATE TABLE KS.totals (k int PRIMARY KEY, n counter)")
    with pytest.raises(Exception, match="has counters: CQL shows totals, and changes have shards"):
        source.frame("totals", rows="changes").collect()


def test_columns_filters_and_token_ranges_are_read_alone(source: Source) -> None:
    source.run("CREATE TABLE KS.o (k int, c int, v text, w int, PRIMARY KEY (k, c))")
    for key in range(30):
        source.run(f"INSERT INTO KS.o (k, c, v, w) VALUES ({key}, {key % 3}, 'v{key}', {key})")
    assert source.frame("o", columns="w, k", details=False).columns == ["w", "k"]
    third = source.rows("o", columns="w", filter="c = 2", allow_filtering=True)
    assert sorted(row["w"] for row in third) == list(range(2, 30, 3))
    with pytest.raises(Exception, match="allow_filtering = true adds it"):
        source.rows("o", columns="w", filter="c = 2")
    tokens = {row.k: row.t for row in source.run("SELECT k, token(k) AS t FROM KS.o")}
    middle, upper = sorted(tokens.values())[10], sorted(tokens.values())[20]
    for start, end in ((middle, upper), (upper, middle)):
        inside = {
            key for key, token in tokens.items()
            if (start < token <= end if start < end else token > start or token <= end)
        }  # fmt: skip
        assert {row["k"] for row in source.rows("o", token_range=f"{start},{end}")} == inside


def test_no_secret_is_in_the_plan_in_the_log_or_in_an_error(source: Source, tmp_path: Path, caplog: Any) -> None:
    secret = "tr0ub4dor"  # noqa: S105 - the node asks for none
    file = tmp_path / "password"
    file.write_text(secret)
    source.run("CREATE TABLE KS.p (k int PRIMARY KEY)")
    frame = source.frame("p", username="u", password_file=file)
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        frame.explain(True)
        frame.explain("formatted")
    assert frame.count() == 0
    with pytest.raises(Exception, match="Spark shows options to everybody") as refused:
        source.frame("p", username="u", password=secret)
    assert "tailrace-snapshot" in shown.getvalue()
    for text in (shown.getvalue(), str(refused.value), caplog.text):
        assert secret not in text


def test_a_table_that_is_not_there_is_named(source: Source) -> None:
    with pytest.raises(Exception, match=rf"has no table {source.keyspace}\.missing"):
        source.frame("missing")
