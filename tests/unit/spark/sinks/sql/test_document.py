"""docs/sinks/sql.md: its example runs, its table of types is the code's, its tables are those that are made."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import sqlalchemy as sa

from tailrace_common.settings import load_settings
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.registry import open_sink
from tailrace_spark.sinks.sql.settings import SUFFIXES
from tailrace_spark.sinks.sql.types import TYPES
from tailrace_spark.sinks.state_store.tables import CATALOG
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import piece
from tests.unit.tables import table

DOCUMENT = Path(__file__).parents[5] / "docs" / "sinks" / "sql.md"


def types_of_the_code() -> list[str]:
    """The lines of the table of types."""
    by_columns: dict[tuple[str, ...], list[str]] = {}
    for kind, specs in TYPES.items():
        by_columns.setdefault(tuple(spec.split(" CHARACTER SET")[0] for spec in specs), []).append(kind)
    return [f"| {', '.join(kinds)} | {' | '.join(specs)} |" for specs, kinds in by_columns.items()]


def test_types() -> None:
    table = DOCUMENT.read_text().partition("## Types\n")[2].partition("\n\n- ")[0].splitlines()
    assert table[3:] == types_of_the_code()


def test_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The document's settings, with what its statements write: all of `tailrace stream` but Kafka and Spark."""
    text = DOCUMENT.read_text()
    [file] = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    [(statement, result)] = re.findall(r"`sqlite3 people.db '(.*?)'` prints `(.*?)`", text)
    assert "INSERT INTO shop.people (id, name) VALUES (1, 'Ann');" in text
    monkeypatch.chdir(tmp_path)
    Path("tailrace.toml").write_text(file)
    settings = load_settings("tailrace.toml", {})
    name, chosen = settings.stream_sink()
    people = table({"id": "int"}, regular={"name": "text"}, keyspace="shop", name="people")
    sink = open_sink(name, chosen, settings.topics.prefix)
    write_here(sink, [piece([Log(people).insert((1,), (), 1_000_000, name="Ann")])])
    sink.close()
    engine = sa.create_engine("sqlite:///people.db")
    with engine.connect() as connection:
        rows = connection.exec_driver_sql(statement).all()
        made = set(sa.inspect(connection).get_table_names())
    engine.dispose()
    assert "\n".join("|".join(map(str, row)) for row in rows) == result
    assert made == {"shop_people__rows", "shop_people__state", *CATALOG.tables}


def test_tables_and_indexes() -> None:
    text = DOCUMENT.read_text().partition("## The tables\n")[2].partition("\n## ")[0]
    assert {name for name in CATALOG.tables if name not in text} == set()
    assert {suffix for suffix in SUFFIXES if f"NAME{suffix}" not in text} == set()
