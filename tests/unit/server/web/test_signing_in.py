"""Signing in by a real OpenID provider on loopback: who is it then, and each way in which an answer does not count."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tailrace.local.ports import free_port
from tailrace_common.sections.server import OidcSettings
from tailrace_common.settings import settings_from
from tailrace_schemas.errors import SettingsError
from tailrace_server.meta.credentials import Role
from tailrace_server.oidc.sign_in import FLOW_SECONDS, challenge
from tailrace_server.operations.asking import Asked
from tailrace_server.web.access import COOKIE
from tailrace_server.web.app import FLOW_COOKIE
from tests.unit.server.oidc.issuer import NOW, parts
from tests.unit.server.oidc.provider import CLIENT, CLIENT_SECRET, ONE, SESSION, Provider, oidc, providing
from tests.unit.server.web.conftest import Browser, NewBrowser, Served, serving

WRONG = "wrong secret"


@pytest.fixture
def provider() -> Iterator[Provider]:
    with providing() as started:
        yield started


@pytest.fixture
def served(provider: Provider, tmp_path: Path) -> Iterator[Served]:
    port = free_port("127.0.0.1")
    with serving(tmp_path, port=port, oidc=oidc(provider, port)) as started:
        started.url = f"http://localhost:{port}"
        started.operations.subscribe(Asked(table="shop.orders", name="warehouse", target="memory"))
        yield started


def sign_in(browser: Browser, to: str = ONE) -> httpx2.Response:
    """By the link of the page that asks for it; then where the page sends the browser."""
    browser.get(to)
    match = re.search(r'href="(/login/oidc\?to=[^"]*)"', browser.page.text)
    assert match
    answer = browser.get(match[1].replace("&amp;", "&"))
    onwards = re.search(r'http-equiv="refresh" content="0;url=([^"]*)"', answer.text)
    return answer if onwards is None else browser.get(onwards[1].replace("&amp;", "&"))


def begun(served: Served, browser: Browser) -> dict[str, str]:
    """What the server asked of the provider, without going there."""
    answer = browser.client.get(f"{served.url}/login/oidc?to={ONE}", follow_redirects=False)
    assert answer.status_code == 303
    return dict(httpx2.URL(answer.headers["Location"]).params)


@pytest.mark.slow
@pytest.mark.promise("subscription.sign-in")
def test_one_signs_in_with_the_role_of_a_claim_and_is_audited(
    served: Served, provider: Provider, browser: NewBrowser
) -> None:
    maria = browser()
    assert str(sign_in(maria, f"{ONE}?a=1&b=2").url) == f"{served.url}{ONE}?a=1&b=2"
    assert "subject maria (operate)" in maria.page.text
    assert "Paused." in maria.post(f"{ONE}/pause").text
    assert served.operations.audit(None, 1)[0]["who"] == "subject maria"
    assert maria.get("/audit").status_code == 403
    maria.get(ONE)
    assert maria.post("/logout").url.path == "/login"
    assert maria.get(ONE).url.path == "/login"
    provider.claims = {"sub": "boss", "roles": ["all", "bosses"], "aud": [CLIENT]}
    assert sign_in(maria, "/audit").url.path == "/audit"
    assert "subject boss (admin)" in maria.page.text
    assert (provider.codes, provider.refusals) == ({}, [])


@pytest.mark.slow
@pytest.mark.promise("subscription.sign-in")
def test_cookies_have_no_secret_of_others_and_end(served: Served, browser: NewBrowser) -> None:
    maria = browser()
    asked = begun(served, maria)
    jar = {cookie.name: cookie for cookie in maria.client.cookies.jar}
    flow = jar[FLOW_COOKIE]
    assert (flow.has_nonstandard_attr("HttpOnly"), flow.get_nonstandard_attr("SameSite"), flow.path) == (
        True,
        "lax",
        "/login",
    )
    for text in (str(flow.value), str(asked)):
        assert CLIENT_SECRET not in text
    state, nonce, verifier, _, _ = str(flow.value).split("~")
    assert (asked["state"], asked["nonce"], asked["code_challenge"]) == (state, nonce, challenge(verifier))
    assert verifier not in str(asked)
    sign_in(maria)
    jar = {cookie.name: cookie for cookie in maria.client.cookies.jar}
    assert FLOW_COOKIE not in jar
    assert jar[COOKIE].has_nonstandard_attr("HttpOnly")
    assert jar[COOKIE].get_nonstandard_attr("SameSite") == "strict"
    assert "maria" not in str(jar[COOKIE].value)
    served.clock.now += SESSION
    assert maria.get(ONE).url.path == ONE
    served.clock.now += 1
    assert maria.get(ONE).url.path == "/login"


@pytest.mark.slow
@pytest.mark.promise("subscription.sign-in")
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"nonce": "n" * 43}, "answers another request to sign in"),
        ({"nonce": None}, "answers another request to sign in"),
        ({"aud": "tailrace"}, "is for another audience"),
        ({"aud": [CLIENT, "other"]}, "was issued for another client"),
        ({"aud": [CLIENT, "other"], "azp": "other"}, "was issued for another client"),
        ({"azp": "other"}, "was issued for another client"),
        ({"iss": "https://evil.example"}, "is of another issuer"),
        ({"exp": NOW - 60}, "has expired"),
        ({"signer": "second"}, "has a signature that does not fit"),
        ({"sub": None}, "names no subject"),
        ({"roles": ["guests"]}, "has no role here"),
    ],
)
def test_an_id_token_that_does_not_count(
    provider: Provider, browser: NewBrowser, changed: dict[str, Any], words: str
) -> None:
    provider.claims = changed
    stranger = browser()
    answer = sign_in(stranger)
    assert (answer.status_code, words in answer.text) == (403 if "roles" in changed else 401, True)
    assert stranger.get(ONE).url.path == "/login"
    provider.claims = {}
    assert sign_in(stranger).url.path == ONE


@pytest.mark.slow
@pytest.mark.promise("subscription.sign-in")
def test_unsigned_tokens_are_never_taken(served: Served, provider: Provider, browser: NewBrowser) -> None:
    stranger = browser()
    asked = begun(served, stranger)
    claims = provider.issuer.claims(aud=CLIENT, nonce=asked["nonce"])
    for token in (parts({"alg": "none", "kid": "first"}, claims) + ".", "no token", ""):
        provider.token = token
        address = provider.authorize(asked)
        assert stranger.get(address.removeprefix(served.url)).status_code == 401
    assert stranger.get(ONE).url.path == "/login"


def answered(served: Served, provider: Provider, browser: Browser, **changed: str | None) -> httpx2.Response:
    """The provider's answer to an attempt, with other parameters."""
    query = dict(httpx2.URL(provider.authorize(begun(served, browser))).params)
    given = {name: value for name, value in {**query, **changed}.items() if value is not None}
    return browser.get("/login/callback", params=given)


@pytest.mark.slow
@pytest.mark.promise("subscription.sign-in")
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"state": "x"}, "belongs to another attempt"),
        ({"state": None}, "belongs to another attempt"),
        ({"iss": "https://evil.example"}, "of another issuer"),
        ({"code": None}, "has no code"),
        ({"code": "guessed"}, "gave no ID token: invalid_grant"),
        ({"code": "x" * 5000}, "has no code"),
        ({"error": "access_denied"}, "The issuer refused: access_denied"),
        ({"error": "<script>"}, "The issuer refused: without a reason"),
    ],
)
def test_an_answer_that_does_not_count(
    served: Served, provider: Provider, browser: NewBrowser, changed: dict[str, str | None], words: str
) -> None:
    stranger = browser()
    answer = answered(served, provider, stranger, **changed)
    assert (answer.status_code, words in answer.text) == (403 if "error" in changed else 401, True)
    assert "<script>" not in answer.text
    assert stranger.get(ONE).url.path == "/login"
    # The attempt is over, whatever came of it.
    assert "has not begun to sign in here" in stranger.get("/login/callback?state=x&code=y").text


@pytest.mark.slow
@pytest.mark.promise("subscription.sign-in")
def test_nobody_is_signed_in_by_an_answer_to_somebody_else(
    served: Served, provider: Provider, browser: NewBrowser
) -> None:
    """Of a link that leads to an attacker's answer, of a code that was taken away, and of one that comes twice."""
    attacker, victim = browser(), browser()
    link = provider.authorize(begun(served, attacker)).removeprefix(served.url)
    assert "has not begun to sign in here" in victim.get(link).text
    begun(served, victim)
    assert "belongs to another attempt" in victim.get(link).text
    stolen = httpx2.URL(provider.authorize(begun(served, victim))).params["code"]
    answer = answered(served, provider, attacker, code=stolen)
    assert (answer.status_code, provider.refusals) == (401, ["verifier"])
    again = browser()
    asked = begun(served, again)
    address = provider.authorize(asked).removeprefix(served.url)
    kept = dict(again.client.cookies)
    assert again.get(address).status_code == 200
    repeated = httpx2.get(served.url + address, cookies=kept, timeout=60)
    assert (repeated.status_code, provider.refusals[-1]) == (401, "code")


@pytest.mark.slow
@pytest.mark.promise("subscription.sign-in")
def test_an_attempt_ends_after_ten_minutes(served: Served, provider: Provider, browser: NewBrowser) -> None:
    slow = browser()
    address = provider.authorize(begun(served, slow)).removeprefix(served.url)
    served.clock.now += FLOW_SECONDS + 1
    assert "longer than ten minutes" in slow.get(address).text
    assert slow.get(ONE).url.path == "/login"


@pytest.mark.slow
def test_it_leads_to_no_other_site(browser: NewBrowser) -> None:
    for target in ("https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)"):
        somebody = browser()
        answer = somebody.get("/login/oidc", params={"to": target})
        assert 'content="0;url=/subscriptions"' in answer.text


@pytest.mark.slow
def test_an_issuer_that_does_not_answer_is_not_asked_again_at_once(
    served: Served, provider: Provider, browser: NewBrowser
) -> None:
    """API keys go on meanwhile."""
    provider.broken = True
    stranger = browser()
    for _ in range(3):
        assert stranger.get("/login/oidc").status_code == 503
    assert provider.asked == 1
    browser(Role.READ)
    provider.broken = False
    served.clock.now += 11
    assert sign_in(stranger).url.path == ONE


@pytest.mark.slow
@pytest.mark.usefixtures("served")
def test_sessions_of_another_client_end_and_so_do_all_without_one(
    provider: Provider, browser: NewBrowser, tmp_path: Path
) -> None:
    """Of a server with the same ones they go on: 403, as the audit is not for this role."""
    maria = browser()
    sign_in(maria)
    cookies = dict(maria.client.cookies)
    sections: list[tuple[dict[str, Any], int]] = [
        ({"oidc": oidc(provider, 1)}, 403), ({"oidc": oidc(provider, 1, client_id="another")}, 303), ({}, 303),
    ]  # fmt: skip
    for section, status in sections:
        with serving(tmp_path, **section) as other:
            assert httpx2.get(f"{other.url}/audit", cookies=cookies, timeout=60).status_code == status
            if not section:
                assert httpx2.get(f"{other.url}/login/oidc", timeout=60).status_code == 404
                assert httpx2.get(f"{other.url}/login/callback", timeout=60).status_code == 404
                assert "/login/oidc" not in httpx2.get(f"{other.url}/login", timeout=60).text


@contextmanager
def browsing(provider: Provider, folder: Path, secret: str | None) -> Iterator[Browser]:
    """A browser at a server whose client has this secret."""
    port = free_port("127.0.0.1")
    with (
        serving(folder, port=port, oidc=oidc(provider, port, client_secret=secret)),
        httpx2.Client(follow_redirects=True, timeout=60) as client,
    ):
        yield Browser(f"http://localhost:{port}", client)


@pytest.mark.slow
def test_a_public_client_has_pkce_alone(provider: Provider, tmp_path: Path) -> None:
    provider.secret = None
    with browsing(provider, tmp_path, None) as somebody:
        assert sign_in(somebody, "/subscriptions").url.path == "/subscriptions"


@pytest.mark.slow
def test_a_wrong_secret_is_said_and_not_shown(provider: Provider, tmp_path: Path) -> None:
    with browsing(provider, tmp_path, WRONG) as somebody:
        answer = sign_in(somebody, "/subscriptions")
        assert "gave no ID token: invalid_client" in answer.text
        assert WRONG not in answer.text
    assert WRONG not in repr(OidcSettings.model_validate(oidc(provider, 1, client_secret=WRONG)))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"client_id": None}, "client_id and redirect_url need each other"),
        ({"client_id": None, "redirect_url": None}, "client_secret needs client_id"),
        ({"redirect_url": "http://cdc.example.com/login/callback"}, "https:// URL that ends with /login/callback"),
        ({"redirect_url": "https://cdc.example.com/other"}, "https:// URL that ends with /login/callback"),
        ({"scopes": ["roles"]}, 'scopes must have "openid"'),
    ],
)
def test_settings_that_do_not_fit(provider: Provider, changed: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        settings_from({"server": {"oidc": oidc(provider, 1, **changed)}}, "test")
