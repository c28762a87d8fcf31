"""Bearer tokens over HTTP, beside API keys: what each role may do, what refusals say, and whom the audit names."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tailrace_common.sections.server import OidcSettings
from tailrace_server.meta.credentials import Role
from tailrace_server.oidc.discovery import Discovery, IssuerKeys
from tailrace_server.oidc.tokens import Tokens
from tailrace_server.operations.remote import RemoteOperations
from tests.unit.server.api.bodies import BODY, ONE
from tests.unit.server.api.conftest import Served, serving
from tests.unit.server.oidc.issuer import AUDIENCE, Issuer

ROLES = {"all": "read", "ops": "operate", "bosses": "admin"}


@pytest.fixture
def open_to_tokens(issuer: Issuer, tmp_path: Path) -> Iterator[Served]:
    settings = OidcSettings.model_validate({"issuer": issuer.url, "audience": AUDIENCE, "roles": ROLES})
    with Discovery(settings) as discovery:
        tokens = Tokens(settings, IssuerKeys(discovery.keys, 600, time.monotonic), time.time)
        with serving(tmp_path, tokens) as served:
            yield served


def token(issuer: Issuer, role: str, **more: Any) -> str:
    now = int(time.time())
    return issuer.token(roles=[role], **{"iat": now, "exp": now + 300, **more})


def ask(served: Served, bearer: str, method: str, path: str, body: object = None) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {bearer}"}
    return httpx2.request(method, served.url + path, headers=headers, json=body, timeout=60)


@pytest.mark.slow
@pytest.mark.promise("subscription.tokens")
def test_roles_of_tokens_are_those_of_keys_and_the_audit_names_the_subject(
    open_to_tokens: Served, issuer: Issuer
) -> None:
    served = open_to_tokens
    asked = {"all": 403, "ops": 201, "bosses": 200}
    for role, status in asked.items():
        answer = ask(served, token(issuer, role, sub=f"s-{role}"), "POST", "/v1/subscriptions", BODY)
        assert answer.status_code == status, answer.text
    assert ask(served, token(issuer, "ops"), "GET", "/v1/audit").status_code == 403
    with RemoteOperations(served.url, token(issuer, "ops", sub="maria")) as operations:
        operations.pause("warehouse")
    assert ask(served, served.keys[Role.OPERATE], "POST", f"{ONE}/resume").status_code == 200
    audit = ask(served, token(issuer, "bosses"), "GET", "/v1/audit").json()
    assert [row["who"] for row in audit] == ["key the-operate", "subject maria", "subject s-ops"]


@pytest.mark.slow
@pytest.mark.promise("subscription.tokens")
def test_a_refusal_says_why_and_repeats_nothing(open_to_tokens: Served, issuer: Issuer) -> None:
    expired = token(issuer, "bosses", exp=int(time.time()) - 100, sub="hunter2")
    answer = ask(open_to_tokens, expired, "GET", "/v1/subscriptions")
    assert (answer.status_code, answer.json()) == (401, {"detail": "the token has expired"})
    assert answer.headers["WWW-Authenticate"] == 'Bearer error="invalid_token"'
    roleless = ask(open_to_tokens, token(issuer, "guest", sub="hunter2"), "GET", "/v1/subscriptions")
    assert (roleless.status_code, "hunter2" in roleless.text, "guest" in roleless.text) == (403, False, False)
    assert "unknown or was revoked" in ask(open_to_tokens, "tailrace_wrong", "GET", ONE).text


@pytest.mark.slow
def test_an_issuer_that_does_not_answer_is_no_refusal(open_to_tokens: Served, issuer: Issuer) -> None:
    issuer.broken = True
    answer = ask(open_to_tokens, token(issuer, "ops"), "GET", "/v1/subscriptions")
    assert (answer.status_code, issuer.url in answer.text) == (503, False)
    assert ask(open_to_tokens, open_to_tokens.keys[Role.READ], "GET", "/v1/subscriptions").status_code == 200
