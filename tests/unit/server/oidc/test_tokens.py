"""Bearer tokens against a real issuer on loopback: whose they are, and each way in which one is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import pytest

from tailrace_common.sections.server import OidcSettings
from tailrace_common.settings import settings_from
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_server.meta.credentials import Caller, Role
from tailrace_server.oidc import discovery
from tailrace_server.oidc import discovery as keys
from tailrace_server.oidc.discovery import AGAIN_SECONDS, STALE_SECONDS, Discovery, IssuerKeys
from tailrace_server.oidc.tokens import RefusedTokenError, Tokens
from tests.support.clock import ManualClock
from tests.unit.server.oidc.issuer import AUDIENCE, NOW, Issuer, b64, elliptic, parts, public_jwk, public_pem

ROLES = {"ops": "operate", "bosses": "admin", "all": "read"}


@pytest.fixture
def clock() -> ManualClock:
    """Wall time, and time since a start."""
    return ManualClock(NOW)


@pytest.fixture
def tokens(issuer: Issuer, clock: ManualClock) -> Iterator[Tokens]:
    with Discovery(settings(issuer)) as discovery:
        yield Tokens(settings(issuer), IssuerKeys(discovery.keys, 600, clock), clock)


def settings(issuer: Issuer, **more: Any) -> OidcSettings:
    return OidcSettings(**{"issuer": issuer.url, "audience": AUDIENCE, "roles": ROLES, **more})


def refusal(tokens: Tokens, token: str) -> str:
    with pytest.raises(RefusedTokenError) as refused:
        tokens.caller(token)
    assert token not in str(refused.value)
    assert refused.value.__cause__ is None
    return str(refused.value)


@pytest.mark.promise("subscription.tokens")
def test_a_token_is_its_subject_with_the_highest_of_its_roles(issuer: Issuer, tokens: Tokens) -> None:
    assert tokens.caller(issuer.token()) == Caller("subject maria", Role.OPERATE)
    assert tokens.caller(issuer.token(roles=["all", "bosses", "ops", 7])).role is Role.ADMIN
    assert tokens.caller(issuer.token(roles="openid all")).role is Role.READ
    assert tokens.caller(issuer.token(kid=None, aud=["account", AUDIENCE])).role is Role.OPERATE


REFUSED: dict[str, tuple[str, Callable[[Issuer], str]]] = {
    "expired": ("has expired", lambda issuer: issuer.token(exp=NOW - 31)),
    "without an end": ("until when", lambda issuer: issuer.token(exp=None)),
    "an end that is no number": ("until when", lambda issuer: issuer.token(exp="never")),
    "of another audience": ("another audience", lambda issuer: issuer.token(aud="other")),
    "of several other audiences": ("another audience", lambda issuer: issuer.token(aud=["a", "b"])),
    "without audience": ("another audience", lambda issuer: issuer.token(aud=None)),
    "of another issuer": ("another issuer", lambda issuer: issuer.token(iss=f"{issuer.url}/")),
    "without issuer": ("another issuer", lambda issuer: issuer.token(iss=None)),
    "not good yet": ("not good yet", lambda issuer: issuer.token(nbf=NOW + 31)),
    "of the future": ("in the future", lambda issuer: issuer.token(iat=NOW + 31)),
    "unsigned": ("not taken", lambda issuer: issuer.unsigned()),
    "signed by the public key as a secret": ("not taken", lambda issuer: issuer.by_secret(public_pem("first"))),
    "by a way of signing that is not set": ("not taken", lambda issuer: issuer.token(head={"alg": "RS512"})),
    "by an unknown key": ("does not publish", lambda issuer: issuer.token(kid="stranger")),
    "by another key under a known name": ("does not fit", lambda issuer: issuer.token(signer="stranger")),
    "with another body": ("does not fit", lambda issuer: forged(issuer, roles=["bosses"])),
    "with its key in its head": ("does not fit", lambda issuer: issuer.token(
        signer="stranger", head={"jwk": public_jwk("stranger")})),
    "with a head that must be understood": ("no signed token", lambda issuer: issuer.token(
        head={"crit": ["tenant"], "tenant": 1})),
    "without subject": ("no subject", lambda issuer: issuer.token(sub=None)),
    "with an empty subject": ("no subject", lambda issuer: issuer.token(sub="")),
    "with a subject of two lines": ("no subject", lambda issuer: issuer.token(sub="maria\nkey ci")),
    "with a long subject": ("more than 190", lambda issuer: issuer.token(sub="m" * 191)),
    "without roles": ("no role here", lambda issuer: issuer.token(roles=None)),
    "with roles of others": ("no role here", lambda issuer: issuer.token(roles=["admin"])),
    "no token": ("no signed token", lambda _: "hello"),
    "three parts of nothing": ("no signed token", lambda _: "a.b.c"),
    "encrypted": ("no signed token", lambda _: "a.b.c.d.e"),
    "nested deeply": ("no signed token", lambda _: f"{b64(b'[' * 3000)}.e30.e30"),
    "claims that are a list": ("does not fit", lambda issuer: listed(issuer)),
}  # fmt: skip


def forged(issuer: Issuer, **changed: Any) -> str:
    head, _, signature = issuer.token().split(".")
    return f"{head}.{b64(json.dumps(issuer.claims(**changed)).encode())}.{signature}"


def listed(issuer: Issuer) -> str:
    head = {"alg": "RS256", "kid": "first"}
    return parts(head, []) + "." + issuer.token().split(".")[2]


@pytest.mark.slow
@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.promise("subscription.tokens")
def test_a_token_is_refused_with_a_reason(issuer: Issuer, tokens: Tokens, kind: str) -> None:
    words, make = REFUSED[kind]
    assert words in refusal(tokens, make(issuer))


def test_clocks_may_differ_a_little(issuer: Issuer, tokens: Tokens) -> None:
    for skewed in (issuer.token(exp=NOW - 29), issuer.token(nbf=NOW + 29), issuer.token(iat=NOW + 29)):
        assert tokens.caller(skewed).name == "subject maria"


def test_claims_may_stand_below_others_or_have_dots(issuer: Issuer, clock: ManualClock) -> None:
    below = settings(issuer, role_claim="realm_access.roles", subject_claim="email")
    dotted = settings(issuer, role_claim="https://example.com/roles")
    with Discovery(below) as discovery:
        keys = IssuerKeys(discovery.keys, 600, clock)
        token = issuer.token(realm_access={"roles": ["bosses"]}, email="maria@example.com")
        assert Tokens(below, keys, clock).caller(token) == Caller("subject maria@example.com", Role.ADMIN)
        named = issuer.token(**dict[str, Any]({"https://example.com/roles": ["all"]}))
        assert Tokens(dotted, keys, clock).caller(named).role is Role.READ


@pytest.mark.promise("subscription.tokens")
def test_keys_are_kept_and_new_ones_are_asked_for(issuer: Issuer, tokens: Tokens, clock: ManualClock) -> None:
    for _ in range(5):
        tokens.caller(issuer.token())
    assert issuer.asked == 2  # the discovery document and the keys
    clock.now += AGAIN_SECONDS
    issuer.keys = [public_jwk("second")]
    assert tokens.caller(issuer.token("second")).role is Role.OPERATE
    assert issuer.asked == 4
    assert "does not publish" in refusal(tokens, issuer.token("first"))  # taken out, and so of no use any more


def test_made_up_tokens_are_no_requests_to_the_issuer(issuer: Issuer, tokens: Tokens, clock: ManualClock) -> None:
    tokens.caller(issuer.token())
    clock.now += AGAIN_SECONDS
    for index in range(20):
        refusal(tokens, issuer.token(f"made-up-{index}", signer="first"))
    assert issuer.asked == 4


def test_an_issuer_that_drips_is_given_up_and_holds_up_nobody_else(
    issuer: Issuer, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte comes within the client's own limit. Requests with API keys need the threads that would wait."""
    monkeypatch.setattr(discovery, "_SECONDS", 2.0)
    monkeypatch.setattr(keys, "_WAIT_SECONDS", 0.1)
    issuer.drips = True

    def refused() -> str:
        with pytest.raises(ServiceError) as error:
            tokens.caller(issuer.token())
        return str(error.value)

    with ThreadPoolExecutor(20) as threads:
        waiting = [threads.submit(refused) for _ in range(20)]
        next(as_completed(waiting, 60))
        assert issuer.asked == 1
        assert {"does not answer" in one.result(60) for one in waiting} == {True}


def test_an_issuer_that_is_down(issuer: Issuer, tokens: Tokens, clock: ManualClock) -> None:
    issuer.broken = True
    with pytest.raises(ServiceError, match="does not answer"):
        tokens.caller(issuer.token())
    issuer.broken = False
    clock.now += AGAIN_SECONDS
    tokens.caller(issuer.token())
    issuer.broken = True
    clock.now += 3600
    assert tokens.caller(issuer.token(exp=NOW + 7200)).name == "subject maria"
    clock.now += STALE_SECONDS
    with pytest.raises(ServiceError, match="does not answer"):
        tokens.caller(issuer.token(exp=NOW + 10 * 86_400))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"issuer": "https://other.example.com"}, "of another issuer"),
        ({"jwks_uri": "http://issuer.example.com/keys"}, "no jwks_uri that is https"),
        ({"jwks_uri": "file:///etc/passwd"}, "no jwks_uri that is https"),
        ({"jwks_uri": None}, "no jwks_uri that is https"),
    ],
)
def test_a_discovery_document_that_leads_elsewhere(issuer: Issuer, document: dict[str, object], words: str) -> None:
    issuer.document = document
    with Discovery(settings(issuer)) as discovery, pytest.raises(ServiceError, match=words):
        discovery.keys()


@pytest.mark.slow
@pytest.mark.promise("subscription.tokens")
def test_keys_that_sign_nothing_here_are_left_out(issuer: Issuer, tokens: Tokens) -> None:
    secret = b"known to all who read the set of keys"
    issuer.keys = [
        {"kty": "oct", "kid": "first", "k": b64(secret)},
        {"kty": "RSA", "kid": "first"},
        public_jwk("small", 1024),
        public_jwk("encrypts", use="enc"),
        public_jwk("other-way", alg="PS256"),
        public_jwk("first"),
    ]
    assert tokens.caller(issuer.token()).name == "subject maria"
    assert "not taken" in refusal(tokens, issuer.by_secret(secret))
    for name in ("encrypts", "other-way"):
        assert "does not publish" in refusal(tokens, issuer.token(name))
    assert "does not publish" in refusal(tokens, issuer.token(kid=None))  # of several keys none is meant


def test_elliptic_curves(issuer: Issuer, tokens: Tokens) -> None:
    assert tokens.caller(elliptic(issuer)).name == "subject maria"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"issuer": "http://login.example.com"}, "must be an https:// URL"),
        ({"issuer": "https://user:hunter2@login.example.com"}, "must be an https:// URL"),
        ({"issuer": None}, "server.oidc.issuer"),
        ({"audience": ""}, "server.oidc.audience"),
        ({"roles": {}}, "server.oidc.roles"),
        ({"roles": {"a": "owner"}}, "'read', 'operate' or 'admin'"),
        ({"algorithms": ["HS256"]}, "server.oidc.algorithms"),
        ({"algorithms": []}, "server.oidc.algorithms"),
        ({"isuer": "x"}, "did you mean server.oidc.issuer?"),
    ],
)
def test_settings_that_are_wrong(given: dict[str, Any], words: str) -> None:
    oidc = {"issuer": "https://login.example.com", "audience": "a", "roles": {"a": "read"}, **given}
    with pytest.raises(SettingsError) as refused:
        settings_from({"server": {"oidc": {k: v for k, v in oidc.items() if v is not None}}}, "test")
    assert words in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_tokens_need_authentication() -> None:
    oidc = {"issuer": "https://login.example.com", "audience": "a", "roles": {"a": "read"}}
    with pytest.raises(SettingsError, match=r"take \[server.oidc\] out"):
        settings_from({"server": {"authentication": False, "oidc": oidc}}, "test")
