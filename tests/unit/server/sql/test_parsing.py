"""What statements say, what is refused with a caret, and that a request as text is read as the same request."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_server.operations.asking import Asked
from tailrace_server.operations.operations import Alteration
from tailrace_server.sql.parsing import Alter, Create, One, Reset, ShowAll, Statement, StatementError, Verb, parse
from tailrace_server.sql.running import render
from tests.unit.server.requests import SECRET

W, ORDERS = "w", "shop.orders"


def parsed(text: str) -> Statement:
    [statement] = parse(text)
    return statement.statement


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("SHOW SUBSCRIPTIONS", ShowAll()),
        ("show all subscriptions like 'shop.%'", ShowAll(True, "shop.%")),
        ("SHOW SUBSCRIPTION w ON shop.orders", One(Verb.SHOW, "shop.orders/w")),
        ("show create subscription w", One(Verb.SHOW_CREATE, W)),
        ("PAUSE SUBSCRIPTION w -- for now", One(Verb.PAUSE, W)),
        ('resume subscription "w" on shop.*', One(Verb.RESUME, "shop.*/w")),
        ("RESET SUBSCRIPTION w FROM LATEST", Reset(W, "latest")),
        ("RESET SUBSCRIPTION w FROM '2026-05-01'", Reset(W, "2026-05-01")),
        ("RESET SUBSCRIPTION w WITH SNAPSHOT", Reset(W, None, snapshot=True)),
        ("reset subscription w with snapshot from latest", Reset(W, "latest", snapshot=True)),
        ("RESET SUBSCRIPTION w WITH SNAPSHOT FROM OFFSETS '{}'", Reset(W, offsets="{}", snapshot=True)),
        ("RESET SUBSCRIPTION snapshot WITH SNAPSHOT", Reset("snapshot", None, snapshot=True)),
        ("RESET SUBSCRIPTION w FROM OFFSETS '{\"t\": {\"0\": 5}}'", Reset(W, offsets='{"t": {"0": 5}}')),
        ("DROP SUBSCRIPTION w", One(Verb.DROP, W)),
        ("ALTER SUBSCRIPTION w SET (a = 1, b = 'x') UNSET (d)",
         Alter(W, Alteration(options={"a": 1, "b": "x", "d": None}))),
        ("ALTER SUBSCRIPTION w SET COLUMNS (email = 'hash') UNSET STREAM (trigger_seconds) SET WHERE id > 1",
         Alter(W, Alteration(columns={"email": "hash"}, stream={"trigger_seconds": None}, where="id > 1"))),
        ("ALTER SUBSCRIPTION w UNSET WHERE", Alter(W, Alteration(where=""))),
        ("ALTER SUBSCRIPTION w INTO lake SET (a = TRUE)", Alter(W, Alteration(target="lake", options={"a": True}))),
        ("CREATE SUBSCRIPTION on ON shop.orders INTO lake",
         Create(Asked(name="on", table=ORDERS, target="lake"))),
        ("CREATE SUBSCRIPTION w ON shop.orders INTO \"my sink\" OPTIONS (n = -1.5, t = true)",
         Create(Asked(name=W, table=ORDERS, target="my sink", options={"n": -1.5, "t": True}))),
        ("CREATE SUBSCRIPTION w ON shop.orders INTO sql WHERE extract(year FROM ts) > 5 /* c */ AND a IS DISTINCT FROM "
         "b AND c <> 'it\\'s; FROM' FROM '2026'",
         Create(Asked(name=W, table=ORDERS, target="sql", start="2026",
                      where="extract(year FROM ts) > 5 /* c */ AND a IS DISTINCT FROM b AND c <> 'it\\'s; FROM'"))),
        ("CREATE SUBSCRIPTION w ON shop.orders INTO sql WHERE $$ a ; from $$ FROM LATEST",
         Create(Asked(name=W, table=ORDERS, target="sql", start="latest", where=" a ; from "))),
    ],
)  # fmt: skip
def test_what_statements_say(text: str, statement: Statement) -> None:
    assert parsed(text) == statement


def test_a_script_has_several() -> None:
    text = ";PAUSE SUBSCRIPTION a;\n-- then; this\nRESUME SUBSCRIPTION b ;;"
    assert [item.statement for item in parse(text)] == [One(Verb.PAUSE, "a"), One(Verb.RESUME, "b")]
    assert parse(" -- nothing\n") == []


@pytest.mark.parametrize(
    ("text", "words", "line", "carets"),
    [
        ("CREATE SUBSCRIPTION w ON shop.orders INTOO sql", "expected: INTO",
         "CREATE SUBSCRIPTION w ON shop.orders INTOO sql", "                                     ^^^^^"),
        ("PAUSE SUBSCRIPTION w;\nRESUME SUBSCRIPTION w w", 'line 2: "w" does not fit here; expected: ";", ON, the end',
         "RESUME SUBSCRIPTION w w", "                      ^"),
        ("DELETE x", '"DELETE" does not fit here', "DELETE x", "^^^^^^"),
        ("DROP SUBSCRIPTION w WITH TARGET", '"WITH" does not fit here', "DROP SUBSCRIPTION w WITH TARGET",
         "                    ^^^^"),
        ("PAUSE SUBSCRIPTION\n", "the statement is not complete; expected: a name", "PAUSE SUBSCRIPTION",
         "                  ^"),
        (f"ALTER SUBSCRIPTION w SET (url = '{SECRET}", "the quote ' is not closed",
         "ALTER SUBSCRIPTION w SET (url = '*******", "                                ^"),
        (f"ALTER SUBSCRIPTION w SET (url '{SECRET}')", "a text does not fit here",
         "ALTER SUBSCRIPTION w SET (url '*******')", "                              ^^^^^^^^^"),
        ("ALTER SUBSCRIPTION w SET (a = 1, a = 2)", "a is set twice",
         "ALTER SUBSCRIPTION w SET (a = 1, a = 2)", "                                 ^^^^^"),
        (f"ALTER SUBSCRIPTION w SET (a = {'7' * 41})", "too many digits",
         f"ALTER SUBSCRIPTION w SET (a = {'7' * 41})", " " * 30 + "^" * 41),
    ],
)  # fmt: skip
def test_a_fault_points_at_its_word(text: str, words: str, line: str, carets: str) -> None:
    with pytest.raises(StatementError) as refused:
        parse(text)
    first, second, third = str(refused.value).split("\n")
    assert words in first
    assert (second, third) == (line, carets)


NAMES = st.one_of(
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,8}", fullmatch=True), st.sampled_from(["on", "sink", "from"])
)
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)
KEYS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=6)
NUMBERS = st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
VALUES: st.SearchStrategy[Any] = st.one_of(st.booleans(), NUMBERS, WORDS)
CONDITIONS = st.one_of(
    WORDS,
    st.lists(
        st.sampled_from([
            "a", "=", "'x'", "'it''s'", "'a\\'b'", "(", ")", "FROM", "DISTINCT", "distinct from", ";", "-- c\n",
            "/* c */", "$$", "$q1$", "`from`", '"', "'", "WHERE", "\n", "1.5", "-",
        ]),
        max_size=8,
    ).map(" ".join),
)  # fmt: skip
REQUESTS = st.builds(
    Asked,
    table=st.from_regex(r"[\w*?]{1,5}\.[\w*?]{1,5}", fullmatch=True),
    name=NAMES,
    target=NAMES,
    options=st.dictionaries(KEYS, VALUES, max_size=3),
    where=st.none() | CONDITIONS,
    columns=st.dictionaries(KEYS, WORDS, max_size=2),
    stream=st.dictionaries(KEYS, VALUES, max_size=2),
    start=st.sampled_from(["earliest", "latest", "2026-05-01"]) | WORDS,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.promise("subscription.sql")
@given(REQUESTS)
def test_a_request_as_text_is_read_as_the_same_request(request: Asked) -> None:
    assert read_again(request) == request


def read_again(request: Asked) -> Asked | None:
    """What its statement asks for; None where that is none."""
    try:
        statement = parsed(render(Create(request)))
    except StatementError:
        return None
    assert isinstance(statement, Create)
    return statement.asked
