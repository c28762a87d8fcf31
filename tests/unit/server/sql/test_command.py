"""`tailrace sql` on the meta database and over HTTP, and the same statements sent to /v1/sql."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner, Result

from tailrace.cli.main import complete
from tailrace_server.meta.credentials import Role
from tests.unit.server.api.conftest import Served, served
from tests.unit.server.requests import SECRET

__all__ = ["served"]  # a fixture

CREATE = "CREATE SUBSCRIPTION warehouse ON shop.orders INTO dwh OPTIONS (table = '{table}') WHERE id > 1"
Sql = Callable[..., Result]


@pytest.fixture
def sql(door: list[str]) -> Sql:
    """The command in a directory with settings."""

    def run(*words: str, stdin: str | None = None) -> Result:
        answer = CliRunner().invoke(complete(), ["sql", "--unchecked", *words, *door], input=stdin)
        assert SECRET not in answer.output
        return answer

    return run


def rows(answer: Result) -> list[dict[str, Any]]:
    assert answer.exit_code == 0, answer.output
    return [json.loads(line) for line in answer.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.promise("subscription.sql")
def test_a_session(sql: Sql, tmp_path: Path) -> None:
    [made] = rows(sql(CREATE))
    assert (made["reference"], made["state"]) == ("shop.orders/warehouse", "active")
    assert rows(sql(CREATE)) == [made]  # the same request again
    [lake] = rows(sql("CREATE SUBSCRIPTION lake ON shop.* INTO lake COLUMNS (email = 'mask') FROM LATEST"))
    assert (lake["target"], made["target"]) == ("lake", "dwh")
    script = "PAUSE SUBSCRIPTION lake;\nALTER SUBSCRIPTION warehouse SET STREAM (trigger_seconds = 5) UNSET WHERE;"
    assert [row["state"] for row in rows(sql(stdin=script))] == ["paused", "active"]
    (tmp_path / "script.sql").write_text("RESUME SUBSCRIPTION lake; RESET SUBSCRIPTION lake FROM '2026-05-01';")
    assert len(rows(sql("--file", "script.sql"))) == 2
    [details] = rows(sql("SHOW SUBSCRIPTION warehouse ON shop.orders"))
    assert (details["where"], details["stream"]) == (None, {"snapshot": "initial", "trigger_seconds": 5})
    assert [row["name"] for row in rows(sql("SHOW SUBSCRIPTIONS LIKE 'shop.orders/%'"))] == ["warehouse"]
    [shown] = rows(sql("SHOW CREATE SUBSCRIPTION lake"))
    rows(sql("DROP SUBSCRIPTION lake"))
    assert rows(sql("SHOW SUBSCRIPTIONS LIKE 'lake'")) == []
    [again] = rows(sql(shown["statement"]))
    assert (again["reference"], again["target"]) == ("shop.*/lake", "lake")
    [details] = rows(sql("SHOW SUBSCRIPTION lake"))
    assert (details["columns"], details["start"]) == ({"email": "mask"}, "2026-05-01T00:00:00.000+00:00")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "words", "carets"),
    [
        ("CREATE SUBSCRIPTION w ON shop.orders INTO dwh OPTIONS (table = '{table}', tabel = 'x')",
         "unknown setting options.tabel; did you mean table?", " " * 74 + "^" * 5),
        ("CREATE SUBSCRIPTION w ON shop.orders INTO dwh OPTIONS (table = 'x')", "sink.w.table", " " * 55 + "^" * 5),
        ("CREATE SUBSCRIPTION w ON shop.orders INTO dhw", "did you mean dwh?", " " * 42 + "^" * 3),
        ("CREATE SUBSCRIPTION w ON shop.orders INTO dwh COLUMNS (e = 5)",
         "columns.e: ", " " * 55 + "^"),
        ("CREATE SUBSCRIPTION w ON shop.orders INTO dwh FROM 'soon'", 'start "soon": must be', " " * 51 + "^" * 6),
        ("PAUSE SUBSCRIPTION neither", "neither: there is no such subscription", " " * 19 + "^" * 7),
    ],
)  # fmt: skip
def test_what_is_refused_points_at_its_word(sql: Sql, statement: str, words: str, carets: str | None) -> None:
    answer = sql(statement)
    assert answer.exit_code != 0
    assert words in answer.stderr
    if carets is not None:
        assert answer.stderr.splitlines()[-1].removeprefix("tailrace: ") == carets


@pytest.mark.slow
def test_nothing_runs_of_a_script_that_is_wrong(sql: Sql) -> None:
    assert sql(f"{CREATE}; DROPP SUBSCRIPTION warehouse").exit_code != 0
    assert rows(sql("SHOW SUBSCRIPTIONS")) == []


@pytest.mark.slow
@pytest.mark.promise("subscription.access")
def test_statements_over_http(served: Served) -> None:
    def send(role: Role | None, statement: str) -> httpx2.Response:
        headers = {} if role is None else {"Authorization": f"Bearer {served.keys[role]}"}
        return httpx2.post(f"{served.url}/v1/sql", json={"statement": statement}, headers=headers, timeout=60)

    create = "CREATE SUBSCRIPTION warehouse ON shop.orders INTO dwh"
    assert send(None, "SHOW SUBSCRIPTIONS").status_code == 401
    assert send(Role.READ, create).status_code == 403
    made = send(Role.OPERATE, create)
    assert (made.status_code, made.json()[0]["reference"]) == (200, "shop.orders/warehouse")
    assert [row["name"] for row in send(Role.READ, "SHOW SUBSCRIPTIONS").json()] == ["warehouse"]
    for wrong, words in (
        ("CREATE SUBSCRIPTION w ON shop.orders INTO dhw", "did you mean dwh?"),
        ("SHOW SUBSCRIPTIONS; SHOW SUBSCRIPTIONS", "one statement at a time"),
        ("SHOW", "the statement is not complete"),
    ):
        refused = send(Role.OPERATE, wrong)
        assert refused.status_code == 422
        assert words in refused.json()["detail"]
        assert SECRET not in refused.text
