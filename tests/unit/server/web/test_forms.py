"""The forms that make and alter subscriptions: checks before anything is kept, errors at the field, secrets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_server.meta.keys import Role
from tailrace_server.operations.asking import Asked
from tailrace_server.web.fields import Kind, fields_of, filled, pairs_of
from tailrace_spark.sinks.registry import SINKS
from tests.unit.server.requests import SECRET
from tests.unit.server.web.conftest import NewBrowser, Served
from tests.unit.tables import table

ORDERS = table({"id": "int"}, regular={"email": "text"}, keyspace="shop", name="orders")
NEW = "/subscriptions/new"
ONE = "/subscriptions/shop.orders/warehouse"
URL = f"postgresql://u:{SECRET}@127.0.0.1:1/d"


def fault(text: str, field: str) -> str:
    match = re.search(rf'<p class="fault" id="{re.escape(field)}-fault">([^<]*)</p>', text)
    return "" if match is None else match[1]


@pytest.mark.parametrize("kind", list(SINKS))
def test_every_type_has_a_form_without_names_of_files(kind: str) -> None:
    fields = fields_of(kind)
    assert [field.name for field in fields if field.name.endswith("_file")] == []
    assert all(field.hint for field in fields)
    assert all(field.choices for field in fields if field.kind is Kind.CHOICE)


@pytest.mark.slow
def test_types_lead_to_forms(browser: NewBrowser) -> None:
    operator = browser(Role.OPERATE)
    kinds = re.findall(r'href="/subscriptions/new\?type=([\w-]+)"', operator.get(NEW).text)
    assert set(kinds) == set(SINKS) - {"console"}
    for kind in kinds:
        assert operator.get(f"{NEW}?type={kind}").status_code == 200
    assert operator.get(f"{NEW}?type=floppy").status_code == 422
    reader = browser(Role.READ)
    assert reader.get(NEW).status_code == 403
    assert reader.post(NEW, type="sql").status_code == 403


@pytest.mark.slow
def test_the_form_asks_first_whether_existing_rows_are_copied(served: Served, browser: NewBrowser) -> None:
    """Yes, unless server.snapshot says otherwise; of log tables it asks nothing."""
    operator = browser(Role.OPERATE)
    text = operator.get(f"{NEW}?type=sql").text
    assert text.index("Copy existing rows?") < text.index("Where to begin with the changes")
    assert 'id="snapshot-initial" name="snapshot" value="initial" checked' in text
    assert ">Cancel</a>" in text
    form = {"type": "sql", "table": "shop.orders", "name": "warehouse", "sink.url": URL, "anyway": "1"}
    operator.post(NEW, **form, snapshot="only")
    assert served.operations.details("warehouse")["snapshot"] == "only"
    text = operator.get(f"{NEW}?type=log-tables").text
    assert 'name="snapshot"' not in text
    assert "Existing rows are not copied" in text


@pytest.mark.slow
def test_tables_are_none_where_kafka_does_not_answer(browser: NewBrowser) -> None:
    assert browser(Role.OPERATE).get("/subscriptions/tables").json() == []
    assert browser(Role.READ).get("/subscriptions/tables").status_code == 403


@pytest.mark.slow
@pytest.mark.promise("subscription.checked")
@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        ({"table": "orders"}, "table", "must be KEYSPACE.TABLE"),
        ({"name": "-"}, "name", "may have letters"),
        ({"sink.table": "x{y}"}, "sink.table", "{keyspace}"),
        ({"sink.merge_horizon_seconds": "soon"}, "sink.merge_horizon_seconds", "integer"),
        ({"columns": "email"}, "columns", "must be NAME = VALUE"),
        ({"columns": "email = paint"}, "columns", "must be &#34;drop&#34;"),
        ({"stream": "trigger = 5"}, "stream", "did you mean trigger_seconds?"),
        ({"start": "time", "time": "soon"}, "start", "must be earliest, latest, or a time"),
    ],
)
def test_an_error_stands_at_its_field_and_nothing_is_kept(
    served: Served, browser: NewBrowser, values: dict[str, str], field: str, words: str
) -> None:
    operator = browser(Role.OPERATE)
    operator.get(f"{NEW}?type=sql")
    form = {"type": "sql", "table": "shop.orders", "name": "warehouse", "sink.url": URL, **values}
    answer = operator.post(NEW, anyway="1", **form)
    assert answer.status_code == 422
    assert words in fault(answer.text, field), answer.text
    assert SECRET not in answer.text
    for name, value in values.items():
        if name not in ("start", "columns", "stream"):
            assert f'name="{name}" value="{value}"' in answer.text  # what was written stays
    assert served.operations.all() == []


@pytest.mark.slow
@pytest.mark.promise("subscription.secrets")
def test_what_does_not_answer_is_shown_first_and_secrets_wait_sealed(served: Served, browser: NewBrowser) -> None:
    """Neither Kafka nor the sink answers."""
    operator = browser(Role.OPERATE)
    operator.get(f"{NEW}?type=sql")
    form = {"type": "sql", "table": "shop.orders", "name": "warehouse", "sink.url": URL, "columns": "email = mask"}
    text = operator.post(NEW, **form).text
    assert "Nothing was kept yet" in text
    assert "127.0.0.1" in text
    assert served.operations.all() == []
    assert SECRET not in text
    match = re.search(r'name="sealed" value="([^"]+)"', text)
    assert match
    again = {**form, "sink.url": "", "sealed": match[1], "anyway": "1"}
    other = browser(Role.OPERATE)
    other.get(f"{NEW}?type=sql")
    other.post(NEW, **{**again, "name": "other"})  # of another session: its default instead
    assert served.operations.details("other")["target"] == "sqlite:///tailrace.db"
    operator.get(f"{NEW}?type=sql")
    assert "Subscribed." in operator.post(NEW, **again).text
    [subscription] = [row for row in served.operations.all() if row["name"] == "warehouse"]
    assert served.site.subscriptions.settings(subscription["id"])["url"] == URL
    operator.get(f"{NEW}?type=sql")
    assert "exists already" in operator.post(NEW, **{**form, "anyway": "1"}).text
    operator.get(f"{NEW}?type=sql")
    taken = operator.post(NEW, **{**form, "anyway": "1", "where": "id > 1"})
    assert (taken.status_code, "exists with another filter" in taken.text) == (422, True)


@pytest.mark.slow
@pytest.mark.promise("subscription.secrets")
def test_no_file_of_the_server_is_read(served: Served, browser: NewBrowser) -> None:
    operator = browser(Role.OPERATE)
    operator.get(f"{NEW}?type=http")
    form = {"type": "http", "table": "a.b", "name": "c", "sink.url": "http://127.0.0.1:1/", "anyway": "1"}
    operator.post(NEW, **{**form, "sink.bearer_token_file": "/etc/hostname"})  # no field of the form
    assert "bearer_token" not in served.operations.details("c")["settings"]


@pytest.mark.slow
def test_alter(served: Served, browser: NewBrowser, tmp_path: Path) -> None:
    sink = {"type": "sql", "url": URL, "table": "{keyspace}.{table}"}
    stream: dict[str, object] = {"trigger_seconds": 5}
    columns = {"email": "mask"}
    asked = Asked(table="shop.orders", name="warehouse", sink=sink, columns=columns, stream=stream)
    identity = served.operations.subscribe(asked)[0]["id"]
    operator = browser(Role.OPERATE)
    text = operator.get(f"{ONE}/alter").text
    assert SECRET not in text
    assert 'value="{keyspace}.{table}"' in text
    assert "trigger_seconds = 5" in text
    unchanged = {"sink.table": "{keyspace}.{table}", "columns": "email = mask", "stream": "trigger_seconds = 5"}
    assert 'id="snapshot-initial" name="snapshot" value="initial" checked' in text
    assert "snapshot = initial" not in text
    operator.post(f"{ONE}/alter", **unchanged, anyway="1")
    assert served.operations.audit(None, 1)[0]["operation"] == "alter"
    assert served.site.subscriptions.settings(identity)["url"] == URL
    operator.get(f"{ONE}/alter")
    other = f"sqlite:///{tmp_path / 'other.db'}"
    changed = {"sink.table": "", "sink.url": other, "sink.on_drop": "clear", "where": "id > 1", "stream": ""}
    changed["snapshot"] = "never"
    assert "Altered." in operator.post(f"{ONE}/alter", **changed, columns="email = drop", anyway="1").text
    details = served.operations.details("warehouse")
    assert served.site.subscriptions.settings(identity) == {"type": "sql", "url": other, "on_drop": "clear"}
    # The form asks for `snapshot` in words of its own.
    expected = ("id > 1", {"email": "drop"}, {"snapshot": "never"})
    assert (details["where"], details["columns"], details["stream"]) == expected
    operator.get(f"{ONE}/alter")
    wrong = operator.post(f"{ONE}/alter", **{"sink.on_drop": "burn", "anyway": "1"})
    assert (wrong.status_code, fault(wrong.text, "sink.on_drop") != "") == (422, True)


@pytest.mark.slow
@given(st.dictionaries(st.from_regex(r"\w{1,8}", fullmatch=True), st.from_regex(r"[a-z0-9 =]{1,9}", fullmatch=True)))
def test_lines_are_read_as_they_were_written(pairs: dict[str, str]) -> None:
    text = "\r\n".join(f"{name} = {value}" for name, value in pairs.items())
    assert pairs_of("columns", text) == {name: value.strip() for name, value in pairs.items()}


def test_what_has_stars_is_not_put_into_a_field() -> None:
    [url] = [field for field in filled(fields_of("http"), {"url": "https://u:**********@h/"}) if field.name == "url"]
    assert (url.value, url.current) == ("", "https://u:**********@h/")
