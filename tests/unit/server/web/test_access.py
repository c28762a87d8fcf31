"""Who may see and do what by the page: sessions, tokens of forms, other sites' pages, headers."""

from __future__ import annotations

import re
from pathlib import Path

import httpx2
import pytest
import sqlalchemy as sa

from tailrace_server.meta.credentials import SECONDS, ApiKeys, Role
from tailrace_server.meta.tables import session
from tailrace_server.operations.asking import Asked
from tailrace_server.web.access import COOKIE
from tailrace_server.web.app import POLICY
from tests.unit.server.requests import SECRET
from tests.unit.server.web.conftest import MOST_BYTES, Browser, NewBrowser, Served, serving

ONE = "/subscriptions/shop.orders/warehouse"
POSTS = (f"{ONE}/pause", f"{ONE}/resume", f"{ONE}/reset", f"{ONE}/cancel")


@pytest.fixture(autouse=True)
def subscription(served: Served) -> None:
    """The one that the pages are about."""
    served.operations.subscribe(Asked(table="shop.orders", name="warehouse", target="dwh"))


def state(served: Served) -> str:
    return str(served.operations.details("warehouse")["state"])


@pytest.mark.slow
def test_nobody_sees_a_page_without_signing_in(served: Served, browser: NewBrowser) -> None:
    stranger = browser()
    for path in ("/subscriptions", ONE, f"{ONE}/reset", f"{ONE}/cancel", "/audit"):
        assert stranger.get(f"{path}?q=a").url.path == "/login"
        assert "warehouse" not in stranger.page.text.replace(ONE, "")
    for path in POSTS:
        assert stranger.post(path).status_code == 401
    assert state(served) == "active"


@pytest.mark.slow
@pytest.mark.promise("subscription.access")
def test_a_reader_sees_no_button_and_may_press_none(served: Served, browser: NewBrowser) -> None:
    reader = browser(Role.READ)
    assert "warehouse" in reader.page.text
    assert reader.get(ONE).status_code == 200
    for word in ("/pause", "/alter", "/reset", "/cancel", "/subscriptions/new", 'href="/audit"'):
        assert word not in reader.page.text
    for path in POSTS:
        reader.get(ONE)
        assert reader.post(path).status_code == 403
    for path in (f"{ONE}/reset", f"{ONE}/cancel", "/audit"):
        assert reader.get(path).status_code == 403
    operator = browser(Role.OPERATE)
    assert operator.get(ONE).text.count(f"{ONE}/pause") == 1
    assert operator.get("/audit").status_code == 403
    assert browser(Role.ADMIN).get("/audit").status_code == 200
    assert state(served) == "active"


@pytest.mark.slow
@pytest.mark.promise("subscription.access")
def test_the_page_changes_in_the_name_of_the_key(served: Served, browser: NewBrowser) -> None:
    operator = browser(Role.OPERATE)
    operator.get(ONE)
    assert "Paused." in operator.post(f"{ONE}/pause").text
    assert state(served) == "paused"
    assert f"{ONE}/resume" in operator.page.text
    operator.post(f"{ONE}/resume")
    assert state(served) == "active"
    operator.post(f"{ONE}/reset", start="time", time="2026-05-01T12:00:00Z")
    assert served.operations.details("warehouse")["start"].startswith("2026-05-01T12:00:00")
    operator.get(f"{ONE}/reset")
    assert operator.post(f"{ONE}/reset", start="time", time="soon").status_code == 422
    assert "must be earliest, latest, or a time" in operator.page.text
    operator.post(f"{ONE}/cancel")
    assert served.operations.all() == []
    assert {row["who"] for row in served.operations.audit(None, 10)} == {"test", "key the-operate"}


@pytest.mark.slow
@pytest.mark.promise("subscription.page-forms")
def test_a_form_needs_the_token_of_its_session(served: Served, browser: NewBrowser) -> None:
    mine, other = browser(Role.OPERATE), browser(Role.OPERATE)
    mine.get(ONE)
    other.get(ONE)
    assert mine.token != other.token
    for token in ("", "wrong", other.token):
        for path in (*POSTS, "/logout", "/login"):
            assert mine.send(path, {"token": token}).status_code == 403
    assert state(served) == "active"


@pytest.mark.slow
@pytest.mark.promise("subscription.page-forms")
@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
    ],
)
def test_no_other_sites_page_changes_anything(served: Served, browser: NewBrowser, headers: dict[str, str]) -> None:
    operator = browser(Role.OPERATE)
    operator.get(ONE)
    values = {"token": operator.token}
    for path in POSTS:
        answer = operator.send(path, values, **headers)
        assert (answer.status_code, "another site" in answer.text) == (403, True)
    assert state(served) == "active"
    own = {"Origin": served.url} if "Origin" in headers else {"Sec-Fetch-Site": "same-origin"}
    assert operator.send(f"{ONE}/pause", values, **own).status_code == 200
    assert state(served) == "paused"


@pytest.mark.slow
@pytest.mark.promise("subscription.page-forms")
def test_without_authentication_the_api_too_is_for_this_machines_pages_alone(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    with serving(tmp_path / "open", authentication=False) as served:
        served.operations.subscribe(Asked(table="shop.orders", name="warehouse", target="dwh"))
        pause = f"{served.url}/v1{ONE}/pause"
        assert httpx2.post(pause, headers={"Sec-Fetch-Site": "cross-site"}, timeout=60).status_code == 403
        assert httpx2.post(pause, headers={"Origin": "https://evil.example"}, timeout=60).status_code == 403
        assert (
            httpx2.get(f"{served.url}/v1/subscriptions", headers={"Host": "evil.example"}, timeout=60).status_code
            == 403
        )
        assert state(served) == "active"
        assert httpx2.post(pause, timeout=60).status_code == 200
        with httpx2.Client(base_url=served.url, follow_redirects=True, timeout=60) as client:
            page = client.get(ONE).text
            assert "Sign out" not in page
            assert client.post(f"{ONE}/resume", data={"token": "wrong"}).status_code == 403
            match = re.search(r'name="token" value="([^"]+)"', page)
            assert match
            assert client.post(f"{ONE}/resume", data={"token": match[1]}).status_code == 200
        assert state(served) == "active"
        assert served.operations.audit(None, 1)[0]["who"] == "anybody@127.0.0.1"


@pytest.mark.slow
@pytest.mark.promise("subscription.secrets")
def test_the_cookie_has_no_key_and_ends(served: Served, browser: NewBrowser) -> None:
    operator = browser(Role.OPERATE)
    [cookie] = [cookie for cookie in operator.client.cookies.jar if cookie.name == COOKIE]
    assert cookie.has_nonstandard_attr("HttpOnly")
    assert (cookie.get_nonstandard_attr("SameSite"), cookie.secure) == ("strict", False)
    key = served.keys[Role.OPERATE]
    with served.database.transaction() as connection:
        [stored] = connection.execute(sa.select(session))
    assert key not in str(cookie.value) + str(stored) + operator.get(ONE).text
    assert str(cookie.value) not in str(stored) + operator.page.text
    assert SECRET not in operator.page.text
    served.clock.now += SECONDS + 1
    assert operator.get(ONE).url.path == "/login"
    operator.sign_in(key)
    assert operator.get(ONE).url.path == ONE
    ApiKeys(served.database).revoke("the-operate")
    assert operator.get(ONE).url.path == "/login"


@pytest.mark.slow
def test_signing_in_and_out(served: Served, browser: NewBrowser) -> None:
    somebody = browser()
    somebody.get("/login")
    assert (somebody.post("/login", key="wrong").status_code, "not known here" in somebody.page.text) == (401, True)
    for target in ("https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)"):
        somebody.get("/login")
        answer = somebody.post("/login", key=served.keys[Role.READ], to=target)
        assert str(answer.url) == f"{served.url}/subscriptions"
    somebody.get("/audit?reference=a%26b")
    somebody.post("/logout")
    assert somebody.page.url.path == "/login"
    assert somebody.get("/subscriptions?q=a&state=paused").url.path == "/login"
    somebody.post("/login", key=served.keys[Role.READ], to="/subscriptions?q=a&state=paused")
    assert str(somebody.page.url).endswith("/subscriptions?q=a&state=paused")


@pytest.mark.slow
@pytest.mark.parametrize("cookie", ["", "x", "x" * 32, "x" * 5000, "{}", "\u00e9"])
def test_a_cookie_that_is_none_is_a_stranger(served: Served, cookie: str) -> None:
    headers = {b"Cookie": f"{COOKIE}={cookie}".encode("latin-1")}
    assert httpx2.get(f"{served.url}{ONE}", headers=headers, timeout=60).status_code == 303


@pytest.mark.slow
@pytest.mark.promise("subscription.access")
def test_a_session_is_of_all_servers_and_its_copies_end_with_it(
    served: Served, browser: NewBrowser, tmp_path: Path
) -> None:
    operator = browser(Role.OPERATE)
    copied = dict(operator.client.cookies)
    with serving(tmp_path) as other:
        answers = [httpx2.get(f"{url}{ONE}", cookies=copied, timeout=60).status_code for url in (served.url, other.url)]
        assert answers == [200, 200]
        operator.get(ONE)
        operator.post("/logout")
        answers = [httpx2.get(f"{url}{ONE}", cookies=copied, timeout=60).status_code for url in (served.url, other.url)]
        assert answers == [303, 303]


@pytest.mark.slow
@pytest.mark.promise("subscription.page-forms")
def test_every_answer_has_the_policy_and_no_page_has_anything_inline(browser: NewBrowser) -> None:
    admin = browser(Role.ADMIN)
    pages = ["/subscriptions", ONE, f"{ONE}/reset", f"{ONE}/cancel", "/audit", "/login", "/nothing", "/v1/nothing"]
    for path in (*pages, "/static/page.js", "/static/page.css", "/health"):
        answer = admin.get(path)
        assert answer.headers["Content-Security-Policy"] == POLICY
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["X-Frame-Options"] == "DENY"
        if "html" in answer.headers["Content-Type"]:
            assert not re.search(r"<style|<script(?! src=\"/static)|\sstyle=|\son\w+=|https?://", answer.text), path
            assert answer.headers["Cache-Control"] == "no-store"
    assert "'unsafe" not in POLICY
    assert admin.get("/nothing").status_code == 404
    assert admin.get("/v1/nothing").json() == {"detail": "Not Found"}


@pytest.mark.slow
def test_a_large_or_strange_form_is_refused(served: Served, browser: NewBrowser) -> None:
    operator = browser(Role.OPERATE)
    operator.get(ONE)
    assert operator.post(f"{ONE}/pause", more="x" * MOST_BYTES).status_code == 413
    operator.get(ONE)
    assert operator.post(f"{ONE}/pause", **{f"f{index}": "" for index in range(600)}).status_code == 400
    operator.get(ONE)
    json = operator.client.post(f"{served.url}{ONE}/pause", json={"token": operator.token})
    assert json.status_code == 415
    assert state(served) == "active"


@pytest.mark.slow
@pytest.mark.promise("subscription.rate-limits")
def test_a_page_says_that_one_asks_too_often(tmp_path: Path) -> None:
    (tmp_path / "limited").mkdir()
    with (
        serving(tmp_path / "limited", requests_per_second=0.5, requests_burst=3) as served,
        httpx2.Client(timeout=60) as client,
    ):
        browser = Browser(served.url, client)
        browser.get("/login")
        for _ in range(3):
            assert browser.post("/login", key="tailrace_guess").status_code == 401
        assert browser.post("/login", key="tailrace_guess").status_code == 429
        assert browser.page.headers["Retry-After"] == "2"
        assert "too many requests: come again in 2.0 s" in browser.page.text
        served.clock.now += 2
        browser.get("/login")
        assert browser.post("/login", key=served.keys[Role.READ]).status_code == 303
        statuses = [browser.get("/subscriptions").status_code for _ in range(4)]
        assert statuses == [200, 200, 200, 429]
