"""Signing in by an OpenID provider of another site, in a real Chromium, which says what a cookie is sent with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tailrace.local.ports import free_port
from tailrace_server.operations.asking import Asked
from tests.integration.server.browser import looked_at
from tests.unit.server.oidc.provider import ONE, oidc, providing
from tests.unit.server.web.conftest import serving


@pytest.mark.long
@pytest.mark.promise("subscription.sign-in")
def test_a_browser_signs_in_by_another_site(tmp_path: Path, chromium: Any) -> None:
    """127.0.0.1 and localhost are two sites: of the provider's page the session's strict cookie would not be sent."""
    port = free_port("127.0.0.1")
    with providing() as provider, serving(tmp_path, port=port, oidc=oidc(provider, port)) as served:
        served.operations.subscribe(Asked(table="shop.orders", name="warehouse", target="memory"))
        page = chromium.new_context().new_page()
        messages: list[str] = []
        page.on("console", lambda message: messages.append(message.text) if message.type == "error" else None)
        page.goto(f"http://localhost:{port}{ONE}?a=1&b=2")
        looked_at(page, "sign-in-by-issuer")
        page.click("text=Sign in by 127.0.0.1")
        page.wait_for_url(f"**{ONE}?a=1&b=2")
        page.wait_for_selector("text=subject maria (operate)")
        page.click("text=Pause")
        page.wait_for_selector("text=Paused.")
        page.click("text=Sign out")
        page.wait_for_url("**/login")
        page.goto(f"http://localhost:{port}{ONE}")
        provider.error = "access_denied"
        page.click("text=Sign in by 127.0.0.1")
        page.wait_for_selector("text=The issuer refused: access_denied.")
        looked_at(page, "sign-in-refused")
        assert [message for message in messages if "403" not in message] == []
