"""The forms that make and alter subscriptions: five questions, checks before anything is kept, errors at the field."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_server.meta.credentials import Role
from tailrace_server.operations.asking import Asked
from tailrace_server.web.editing import pairs_of
from tests.unit.server.requests import SECRET, TARGETS
from tests.unit.server.web.conftest import NewBrowser, Served

NEW = "/subscriptions/new"
ONE = "/subscriptions/shop.orders/warehouse"
FORM = {"table": "shop.orders", "target": "dwh", "name": "warehouse"}
ASKED = Asked(table="shop.orders", target="dwh", name="warehouse")


def fault(text: str, field: str) -> str:
    match = re.search(rf'<p class="fault" id="{re.escape(field)}-fault">([^<]*)</p>', text)
    return "" if match is None else match[1]


@pytest.mark.slow
def test_the_form_asks_five_questions_and_offers_the_targets(served: Served, browser: NewBrowser) -> None:
    """Existing rows are copied, unless server.snapshot says otherwise. The name is that of the target."""
    operator = browser(Role.OPERATE)
    text = operator.get(NEW).text
    questions = ["Which table?", "Into which target?", "Copy existing rows?", "Which rows?", "Which columns?"]
    places = [text.index(words) for words in (*questions, "<details")]
    assert places == sorted(places)
    assert set(re.findall(r'<option value="([\w-]+)"', text)) == set(TARGETS) - {"screen"}
    assert 'id="snapshot-initial" name="snapshot" value="initial" checked' in text
    operator.post(NEW, table="shop.orders", target="dwh", snapshot="only", anyway="1")
    assert served.operations.details("shop.orders/dwh")["snapshot"] == "only"
    operator.get(NEW)
    operator.post(NEW, table="shop.orders", target="logs", snapshot="initial", anyway="1")
    assert served.operations.details("shop.orders/logs")["snapshot"] == "never"
    assert "Existing rows are not copied" in operator.get("/subscriptions/shop.orders/logs/alter").text
    reader = browser(Role.READ)
    assert reader.get(NEW).status_code == 403
    assert reader.post(NEW, **FORM).status_code == 403


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
        ({"target": "floppy"}, "target", "there is no [sink.floppy]"),
        ({"name": "-"}, "name", "may have letters"),
        ({"options": "table = x{y}"}, "options", "{keyspace}"),
        ({"options": "url = http://evil/"}, "options", "unknown setting options.url"),
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
    operator.get(NEW)
    answer = operator.post(NEW, anyway="1", **{**FORM, **values})
    assert answer.status_code == 422
    assert words in fault(answer.text, field), answer.text
    for name, value in values.items():
        if name in ("table", "name"):
            assert f'name="{name}" value="{value}"' in answer.text  # what was written stays
    assert served.operations.all() == []


@pytest.mark.slow
def test_what_does_not_answer_is_shown_first(served: Served, browser: NewBrowser) -> None:
    """Neither Kafka nor the sink answers."""
    operator = browser(Role.OPERATE)
    operator.get(NEW)
    text = operator.post(NEW, **FORM, columns="email = mask").text
    assert "Nothing was kept yet" in text
    assert "127.0.0.1" in text
    assert served.operations.all() == []
    assert SECRET not in text
    assert "Subscribed." in operator.post(NEW, **FORM, columns="email = mask", anyway="1").text
    operator.get(NEW)
    assert "exists already" in operator.post(NEW, **FORM, columns="email = mask", anyway="1").text
    operator.get(NEW)
    taken = operator.post(NEW, **FORM, columns="email = mask", where="id > 1", anyway="1")
    assert (taken.status_code, "exists with another filter" in taken.text) == (422, True)


@pytest.mark.slow
def test_alter(served: Served, browser: NewBrowser) -> None:
    stream: dict[str, bool | int | float | str] = {"trigger_seconds": 5}
    options = {"table": "{keyspace}.{table}"}
    asked = replace(ASKED, options=options, columns={"email": "mask"}, stream=stream)
    served.operations.subscribe(asked)
    operator = browser(Role.OPERATE)
    text = operator.get(f"{ONE}/alter").text
    assert "table = {keyspace}.{table}" in text
    assert "trigger_seconds = 5" in text
    assert "snapshot = initial" not in text
    unchanged = {"options": "table = {keyspace}.{table}", "columns": "email = mask", "stream": "trigger_seconds = 5"}
    assert 'id="snapshot-initial" name="snapshot" value="initial" checked' in text
    before = served.operations.details("warehouse")
    operator.alter(ONE, **unchanged)
    assert served.operations.audit(None, 1)[0]["operation"] == "alter"
    assert served.operations.details("warehouse")["options"] == before["options"]
    operator.get(f"{ONE}/alter")
    changed = {"options": "", "where": "id > 1", "stream": "", "snapshot": "never"}
    assert "Altered." in operator.alter(ONE, **changed, columns="email = drop").text
    details = served.operations.details("warehouse")
    # The form asks for `snapshot` in words of its own.
    expected: tuple[object, ...] = ({}, "id > 1", {"email": "drop"}, {"snapshot": "never"})
    assert tuple(details[name] for name in ("options", "where", "columns", "stream")) == expected
    operator.get(f"{ONE}/alter")
    wrong = operator.alter(ONE, options="on_drop = burn")
    assert (wrong.status_code, fault(wrong.text, "options") != "") == (422, True)


@pytest.mark.slow
def test_who_loaded_a_form_before_another_altered_takes_nothing_back(served: Served, browser: NewBrowser) -> None:
    """A mask that was set meanwhile stays."""
    served.operations.subscribe(ASKED)
    late, early = browser(Role.OPERATE), browser(Role.OPERATE)
    late.get(f"{ONE}/alter")
    early.get(f"{ONE}/alter")
    early.alter(ONE, columns="email = mask")
    answer = late.alter(ONE, where="id > 1")
    assert (answer.status_code, "was changed meanwhile" in answer.text) == (422, True)
    assert served.operations.details("warehouse")["columns"] == {"email": "mask"}


@pytest.mark.slow
@given(st.dictionaries(st.from_regex(r"\w{1,8}", fullmatch=True), st.from_regex(r"[a-z0-9 =]{1,9}", fullmatch=True)))
def test_lines_are_read_as_they_were_written(pairs: dict[str, str]) -> None:
    text = "\r\n".join(f"{name} = {value}" for name, value in pairs.items())
    assert pairs_of("columns", {"columns": text}) == {name: value.strip() for name, value in pairs.items()}
