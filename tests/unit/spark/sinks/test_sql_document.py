"""docs/sinks/sql.md: its example runs, its table of types is the code's, its tables are those that are made."""

from __future__ import annotations

import re
from pathlib import Path

import sqlalchemy as sa

from tailrace_spark.sinks.sql_names import CATALOG, SUFFIXES
from tailrace_spark.sinks.sql_types import TYPES

DOCUMENT = Path(__file__).parents[4] / "docs" / "sinks" / "sql.md"


def types_of_the_code() -> list[str]:
    """The lines of the table of types."""
    by_columns: dict[tuple[str, ...], list[str]] = {}
    for kind, specs in TYPES.items():
        by_columns.setdefault(tuple(spec.split(" CHARACTER SET")[0] for spec in specs), []).append(kind)
    return [f"| {', '.join(kinds)} | {' | '.join(specs)} |" for specs, kinds in by_columns.items()]


def test_types() -> None:
    table = DOCUMENT.read_text().partition("## Types\n")[2].partition("\n\n- ")[0].splitlines()
    assert table[3:] == types_of_the_code()


def test_the_example(tmp_path: Path) -> None:
    [example] = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    url = f"sqlite:///{tmp_path / 'people.db'}"
    exec(compile(example, str(DOCUMENT), "exec"), {"url": url})  # noqa: S102 - the document's own example
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT * FROM shop_people").all() == [(1, "Ann")]
        made = set(sa.inspect(connection).get_table_names())
    engine.dispose()
    assert made == {"shop_people__rows", "shop_people__state", *CATALOG.tables}


def test_tables_and_indexes() -> None:
    text = DOCUMENT.read_text()
    assert {name for name in CATALOG.tables if name not in text} == set()
    assert {suffix for suffix in SUFFIXES if f"NAME{suffix}" not in text} == set()
