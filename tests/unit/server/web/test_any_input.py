"""Whatever somebody sends to any route of the API or of the page is answered, and never by an error of the server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace_server.meta.credentials import Role
from tailrace_server.model.subscription import ConflictError
from tailrace_server.operations.asking import Asked
from tests.properties import examples
from tests.unit.server.web.conftest import Browser, Served, routes_of, serving

SLOW = ("/subscriptions/tables", "/letters")
"""What asks Kafka, which does not answer here, and takes no body."""
NINES = "9" * 5000
STATEMENTS = (
    "SHOW SUBSCRIPTIONS",
    "DROP SUBSCRIPTION w ON shop.orders",
    f"ALTER SUBSCRIPTION w SET (table = {NINES})",
    "ALTER SUBSCRIPTION w SET STREAM (trigger_seconds = 1e999)",
    "RESET SUBSCRIPTION w FROM '9999-12-31T23:59:59-01:00'",
    "RESET SUBSCRIPTION w FROM OFFSETS '" + "[" * 5000 + "'",
    """RESET SUBSCRIPTION w FROM OFFSETS '{"t": {"0": 1e999}}'""",
    f"""RESET SUBSCRIPTION w FROM OFFSETS '{{"t": {{"0": {NINES}}}}}'""",
)
WORDS = ("shop.orders", "w", "dwh", "logs", "screen", "earliest", "id > 1", "9999-12-31T23:59:59.9999-23:00",
         "0001-01-01", "\0", "a" * 9000, "(" * 3000, "%a" * 60 + "!")  # fmt: skip
TEXTS = st.text(st.characters(codec=None), max_size=20) | st.sampled_from([*WORDS, *STATEMENTS])
"""Halves of characters too."""
NUMBERS = st.one_of(st.integers(), st.sampled_from([2**63, -(2**63) - 1, 10**400, 1e308]), st.floats())
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda items: st.lists(items, max_size=3) | st.dictionaries(TEXTS, items, max_size=3),
    max_leaves=8,
)
NAMES = (
    "table", "name", "target", "options", "where", "columns", "stream", "start", "offsets", "snapshot", "statement",
    "check", "revision",
)  # fmt: skip
SETTINGS = st.dictionaries(
    st.sampled_from(["table", "email", "trigger_seconds", "snapshot", "execution"]) | TEXTS, NUMBERS | TEXTS, max_size=3
)
OFFSETS = st.dictionaries(
    st.just("t") | TEXTS, st.dictionaries(st.integers(0, 2**40).map(str) | TEXTS, NUMBERS, max_size=2), max_size=2
)
FIELDS = {"options": SETTINGS, "columns": SETTINGS, "stream": SETTINGS, "where": TEXTS}
LIKELY: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    "/v1/subscriptions": st.fixed_dictionaries(
        {
            "table": st.just("shop.orders") | TEXTS,
            "name": st.just("w") | TEXTS,
            "target": st.sampled_from(["dwh", "logs"]) | TEXTS,
        },
        optional={**FIELDS, "start": TEXTS},
    ),
    "/v1/subscriptions/{table}/{name}": st.fixed_dictionaries(
        {}, optional={**FIELDS, "revision": NUMBERS, "target": TEXTS}
    ),
    "/v1/subscriptions/{table}/{name}/reset": st.fixed_dictionaries({}, optional={"offsets": OFFSETS, "start": TEXTS}),
    "/v1/sql": st.fixed_dictionaries({"statement": TEXTS | st.sampled_from(STATEMENTS)}),
}
"""What comes near a body of a route."""
REQUEST = b'"table": "shop.orders", "name": "w", "target": "dwh"'
RAW = st.sampled_from([
    b"", b"{", b"\xff", b"[" * 9000, b'{"a":' * 900, NINES.encode(), b'{"\\ud800": 1}', b"{%s, %s}" % (REQUEST, b"1"),
    b'{"offsets": {"t": {"0": %s}}}' % NINES.encode(), b'{"statement": "SHOW SUBSCRIPTION \\udfff"}',
    b'{%s, "where": "\\ud800"}' % REQUEST, b'{%s, "options": {"table": NaN}}' % REQUEST,
])  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One that takes any number of requests."""
    with serving(tmp_path_factory.mktemp("any"), requests_burst=10**9, requests_per_second=10**9) as started:
        yield started


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=served.url, timeout=60, follow_redirects=False) as made:
        yield made


def filled(path: str, texts: list[str]) -> str:
    """A path with texts for its parameters."""
    given = iter(texts)
    return re.sub(r"{\w+}", lambda _: quote(next(given).encode(errors="replace"), safe=""), path)


@pytest.mark.slow
@pytest.mark.promise("subscription.any-input")
@settings(max_examples=examples(200))
@given(st.data())
def test_no_body_to_the_api_is_an_error_of_the_server(
    served: Served, client: httpx2.Client, data: st.DataObject
) -> None:
    methods, path = data.draw(st.sampled_from(routes_of(served.app, "/v1/")))
    one = data.draw(st.just(["shop.orders", "w"]) | st.lists(TEXTS.filter(bool), min_size=2, max_size=2))
    bodies = LIKELY.get(path, VALUES) | st.dictionaries(st.sampled_from(NAMES), VALUES | SETTINGS, max_size=8)
    content = data.draw(bodies.map(lambda body: json.dumps(body).encode()) | RAW)
    with suppress(ConflictError):
        served.operations.subscribe(Asked(table="shop.orders", name="w", target="dwh"))
    query = data.draw(st.dictionaries(st.sampled_from(["limit", "reference", "cancelled", "x"]), TEXTS, max_size=1))
    headers = {"Authorization": f"Bearer {served.keys[Role.ADMIN]}", "Content-Type": "application/json"}
    for method in methods:
        params = {name: value.encode(errors="replace").decode() for name, value in query.items()}
        answer = client.request(method, filled(path, one), params=params, content=content, headers=headers)
        assert answer.status_code < 500, answer.text


@pytest.mark.slow
@pytest.mark.promise("subscription.any-input")
@given(st.data())
def test_no_form_to_the_page_is_an_error_of_the_server(
    served: Served, client: httpx2.Client, data: st.DataObject
) -> None:
    browser = Browser(served.url, client)
    if not client.cookies:
        browser.get("/login")
        browser.post("/login", key=served.keys[Role.ADMIN])
    paths = [route for route in routes_of(served.app, "/") if not route[1].endswith(SLOW) and "/v1/" not in route[1]]
    methods, path = data.draw(st.sampled_from([route for route in paths if not route[1].endswith(("logout", "login"))]))
    one = data.draw(st.just(["shop.orders", "w"]) | st.lists(TEXTS.filter(bool), min_size=2, max_size=2))
    names = st.sampled_from([*NAMES, "time", "to", "key", "q"]) | TEXTS
    form = {name.encode(errors="replace").decode(): value.encode(errors="replace").decode()
            for name, value in data.draw(st.dictionaries(names, TEXTS, max_size=6)).items()}  # fmt: skip
    browser.get("/subscriptions")
    for method in methods:
        if method == "POST":
            values = {**form, "token": browser.token, "anyway": "1"}
            answer = client.post(filled(path, one), data=values)
        else:
            answer = client.request(method, filled(path, one), params=form)
        assert answer.status_code < 500, answer.text


@pytest.mark.slow
@pytest.mark.promise("subscription.any-input")
@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/v1/subscriptions/shop.orders/w/reset", b'{"offsets": {"t": {"0": 9223372036854775808}}}'),
        ("/v1/subscriptions/shop.orders/w/reset", b'{"offsets": {"t": {"99999999999": 1}}}'),
        ("/v1/subscriptions/shop.orders/w/reset", b'{"offsets": {"t": {"0": -5}}}'),
        ("/v1/subscriptions/shop.orders/w/reset", b'{"offsets": {"t": {"0": %s}}}' % NINES.encode()),
        ("/v1/subscriptions/shop.orders/w/reset", b'{"start": "9999-12-31T23:59:59-01:00"}'),
        ("/v1/subscriptions", b'{"table": "\\ud800", "name": "w", "target": "dwh"}'),
        ("/v1/subscriptions", b'{%s, "where": "\\u0000"}' % REQUEST),
        ("/v1/subscriptions", b'{%s, "options": {"table": [[[[]]]]}}' % REQUEST),
        ("/v1/subscriptions", b"[" * 19_000),
        ("/v1/subscriptions", b'{%s, "stream": {"trigger_seconds": NaN}}' % REQUEST),
        ("/v1/sql", b'{"statement": "PAUSE SUBSCRIPTION \\"\\ud800\\""}'),
        ("/v1/sql", json.dumps({"statement": STATEMENTS[2]}).encode()),
        ("/v1/sql", json.dumps({"statement": STATEMENTS[-1]}).encode()),
        ("/v1/sql", json.dumps({"statement": "(" * 9000}).encode()),
        ("/v1/sql", json.dumps({"statement": " " * 10_001}).encode()),
    ],
    ids=[
        "offset", "partition", "negative", "digits", "year", "surrogate", "nul", "lists", "depth", "nan",
        "statement-surrogate", "statement-digits", "statement-offsets", "statement-depth", "statement-size",
    ],
)  # fmt: skip
def test_what_was_an_error_of_the_server_is_refused(
    served: Served, client: httpx2.Client, path: str, content: bytes
) -> None:
    with suppress(ConflictError):
        served.operations.subscribe(Asked(table="shop.orders", name="w", target="dwh"))
    headers = {"Authorization": f"Bearer {served.keys[Role.ADMIN]}", "Content-Type": "application/json"}
    answer = client.post(path, content=content, headers=headers)
    assert answer.status_code in (400, 422), answer.text


@pytest.mark.slow
@pytest.mark.promise("subscription.any-input")
@pytest.mark.parametrize(
    "headers",
    [{"Host": "["}, {"Origin": "http://["}, {"Cookie": "tailrace_session=\u00e9"}, {"Authorization": "Bearer \u00e9"}],
)
def test_no_header_is_an_error_of_the_server(served: Served, headers: dict[str, str]) -> None:
    encoded = {name.encode(): value.encode("latin-1") for name, value in headers.items()}
    for path in ("/v1/subscriptions", "/subscriptions"):
        assert httpx2.post(served.url + path, headers=encoded, timeout=60).status_code < 500


@pytest.mark.slow
@pytest.mark.promise("subscription.any-input")
def test_a_pattern_of_a_reader_holds_up_nobody(served: Served, client: httpx2.Client) -> None:
    """One that is tried letter by letter takes years for a name of this length."""
    headers = {"Authorization": f"Bearer {served.keys[Role.ADMIN]}"}
    body = {"table": "shop.orders", "name": "a" * 64, "target": "dwh"}
    assert client.post("/v1/subscriptions?check=false", json=body, headers=headers).status_code in (200, 201)
    for pattern, count in (("%a" * 40 + "!", 0), ("%a" * 40, 1), ("a*%", 0), ("%/a_%", 1), ("[a]%", 0)):
        statement = {"statement": f"SHOW SUBSCRIPTIONS LIKE '{pattern}'"}
        answer = client.post("/v1/sql", json=statement, headers=headers)
        assert len(answer.json()) == count, pattern
