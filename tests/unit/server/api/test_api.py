"""The HTTP API: who may do what, what comes back, what is refused; by a client of HTTP, and by our own."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_server.api.listening import Impatient
from tailrace_server.meta.credentials import Role
from tailrace_server.model.subscription import ConflictError, RefusedRequestError, UnknownSubscriptionError
from tailrace_server.operations.asking import Asked
from tailrace_server.operations.operations import Alteration
from tailrace_server.operations.remote import RemoteOperations
from tests.unit.server.api.bodies import BODY, ONE
from tests.unit.server.api.conftest import MOST_BYTES, Served, serving
from tests.unit.server.requests import SECRET


@pytest.fixture
def operations(served: Served) -> Iterator[RemoteOperations]:
    """An admin's."""
    with RemoteOperations(served.url, served.keys[Role.ADMIN]) as operations:
        yield operations


def ask(served: Served, role: Role | None, method: str, path: str, body: object = None) -> httpx2.Response:
    headers = {} if role is None else {"Authorization": f"Bearer {served.keys[role]}"}
    return httpx2.request(method, served.url + path, headers=headers, json=body, timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "path", "needed"),
    [
        ("GET", "/v1/subscriptions", Role.READ),
        ("GET", ONE, Role.READ),
        ("GET", "/v1/audit", Role.ADMIN),
        ("POST", "/v1/subscriptions", Role.OPERATE),
        ("PUT", "/v1/subscriptions", Role.OPERATE),
        ("PATCH", ONE, Role.OPERATE),
        ("POST", f"{ONE}/pause", Role.OPERATE),
        ("POST", f"{ONE}/resume", Role.OPERATE),
        ("POST", f"{ONE}/reset", Role.OPERATE),
        ("DELETE", ONE, Role.OPERATE),
    ],
)
@pytest.mark.promise("subscription.access")
def test_every_route_asks_for_a_key_with_its_role(served: Served, method: str, path: str, needed: Role) -> None:
    bodies = {"POST": BODY if path == "/v1/subscriptions" else {}, "PUT": BODY, "PATCH": {"where": "id > 1"}}
    assert ask(served, Role.ADMIN, "POST", "/v1/subscriptions", BODY).status_code == 201
    assert ask(served, None, method, path, bodies.get(method)).status_code == 401
    wrong = httpx2.request(method, served.url + path, headers={"Authorization": "Bearer wrong"}, timeout=60)
    assert (wrong.status_code, "unknown or was revoked" in wrong.text) == (401, True)
    for role in Role:
        status = ask(served, role, method, path, bodies.get(method)).status_code
        assert (status == 403) == (not role.may(needed)), role
        assert status in (200, 201, 403, 404)


@pytest.mark.slow
def test_every_route_of_the_description_is_tested(served: Served) -> None:
    described = httpx2.get(f"{served.url}/openapi.json", timeout=60).json()
    routes = {(method, path) for path, methods in described["paths"].items() for method in methods}
    assert (
        len(routes) == 14
    )  # those above, /health, /health/ready, /metrics, and /v1/sql, whose rights are its statement's
    assert httpx2.get(f"{served.url}/docs", timeout=60).status_code == 404


@pytest.mark.slow
@pytest.mark.promise("subscription.secrets")
def test_no_answer_has_a_secret(served: Served) -> None:
    texts = [ask(served, Role.ADMIN, "POST", "/v1/subscriptions", body).text for body in (
        BODY, BODY, {**BODY, "where": "id > 1"}, {**BODY, "name": "-"}, {**BODY, "options": {"tabel": 1}},
        {**BODY, "options": SECRET}, {"options": {"url": SECRET}}, {**BODY, "more": SECRET},
    )]  # fmt: skip
    texts += [ask(served, Role.ADMIN, "PATCH", ONE, {"options": {"table": f"{SECRET}{{"}, "more": 1}).text]
    texts += [ask(served, Role.ADMIN, "GET", path).text for path in ("/v1/subscriptions", ONE, "/v1/audit")]
    assert all(texts)
    assert [text for text in texts if SECRET in text] == []
    assert '"target":"dwh"' in texts[-2]


@pytest.mark.slow
@pytest.mark.promise("subscription.targets")
@pytest.mark.parametrize("role", [Role.OPERATE, Role.ADMIN])
def test_a_request_names_a_target_and_no_address(served: Served, role: Role) -> None:
    evil = {"type": "sql", "url": "mysql://evil/d?local_infile=1"}
    assert ask(served, role, "POST", "/v1/subscriptions?check=false", BODY).status_code == 201
    for method, path, body in (
        ("POST", "/v1/subscriptions?check=false", {**BODY, "name": "x", "sink": evil}),
        ("POST", "/v1/subscriptions?check=false", {**BODY, "name": "x", "options": evil}),
        ("PUT", "/v1/subscriptions?check=false", {**BODY, "options": evil}),
        ("PATCH", f"{ONE}?check=false", {"sink": {"url": "http://evil/"}}),
        ("PATCH", f"{ONE}?check=false", {"options": {"url": "http://evil/"}}),
        ("PATCH", f"{ONE}?check=false", {"target": "http://evil/"}),
        ("POST", "/v1/sql", {"statement": "ALTER SUBSCRIPTION warehouse SET (url = 'http://evil/')", "check": False}),
    ):
        refused = ask(served, role, method, path, body)
        assert refused.status_code == 422, refused.text
    assert ask(served, role, "GET", ONE).json()["options"] == {}
    assert len(ask(served, role, "GET", "/v1/subscriptions").json()) == 1


@pytest.mark.slow
def test_what_a_request_does_not_take_is_refused_and_changes_nothing(served: Served) -> None:
    ask(served, Role.ADMIN, "POST", "/v1/subscriptions?check=false", BODY)
    for method, path, body, words in (
        ("DELETE", f"{ONE}?drop_target=true", None, "drop_target: unknown parameter; this request takes none"),
        (
            "PUT",
            "/v1/subscriptions?dryrun=true",
            BODY,
            "dryrun: unknown parameter; this request takes dry_run, check, paused",
        ),
        ("PATCH", ONE, {"spark": {"spark.executor.memory": "2g"}}, "spark: Unexpected keyword argument"),
        ("POST", "/v1/subscriptions", {"target": "dwh"}, "table: Field required; name: Field required"),
    ):
        refused = ask(served, Role.ADMIN, method, path, body)
        assert (refused.status_code, refused.json()["detail"]) == (422, words)
    assert ask(served, Role.ADMIN, "GET", ONE).json()["state"] == "active"


@pytest.mark.slow
@pytest.mark.promise("subscription.access")
def test_a_large_body_is_not_read(served: Served) -> None:
    body = {**BODY, "where": "x" * MOST_BYTES}
    assert ask(served, Role.ADMIN, "POST", "/v1/subscriptions", body).status_code == 413

    def chunks() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * 1000

    headers = {"Authorization": f"Bearer {served.keys[Role.ADMIN]}", "Content-Type": "application/json"}
    answer = httpx2.post(f"{served.url}/v1/subscriptions", content=chunks(), headers=headers, timeout=60)
    assert answer.status_code == 413


@pytest.mark.slow
def test_operations_by_http_are_those_on_the_database(served: Served, operations: RemoteOperations) -> None:
    asked = Asked(table="shop.*", name="all", target="dwh", columns={"email": "mask"})
    first, again = operations.subscribe(asked), operations.subscribe(asked)
    assert (first[1], again[1], first[0]["reference"]) == (True, False, "shop.*/all")
    with pytest.raises(ConflictError, match="exists with another filter"):
        operations.subscribe(Asked(table="shop.*", name="all", target="dwh"))
    assert operations.pause("all")["state"] == "paused"
    assert operations.resume("shop.*/all")["state"] == "active"
    operations.alter("all", Alteration(where="id > 1", columns={"email": None}, options={"table": "{table}"}))
    details = operations.details("all")
    assert (details["where"], details["columns"], details["options"]["table"]) == ("id > 1", {}, "{table}")
    with pytest.raises(ConflictError, match="was changed meanwhile"):
        operations.alter("all", Alteration(where="id > 2", revision=details["revision"] - 1))
    operations.alter("all", Alteration(where="id > 2", revision=details["revision"]))
    operations.reset("all", "earliest", {("t", 3): 5})
    assert operations.details("all")["partitions"][0]["next"] == 5
    assert [row["reference"] for row in operations.all()] == ["shop.*/all"]
    assert operations.cancel("all")["state"] == "cancelled"
    assert operations.all() == []
    assert len(operations.all(cancelled=True)) == 1
    with pytest.raises(UnknownSubscriptionError, match="no such subscription"):
        operations.pause("shop.*/all")
    with pytest.raises(RefusedRequestError, match="must be KEYSPACE"):
        operations.subscribe(Asked(table="orders", name="all", target="dwh"))
    whos = {row["who"] for row in operations.audit(None, 100)}
    assert whos == {"key the-admin"}
    with RemoteOperations(served.url, None) as stranger, pytest.raises(SettingsError, match="TAILRACE_API_KEY"):
        stranger.all()


def test_a_server_that_is_not_there() -> None:
    with (
        RemoteOperations("http://127.0.0.1:1", "key") as operations,
        pytest.raises(ServiceError, match=r"127\.0\.0\.1:1"),
    ):
        operations.all()


def test_health_needs_no_key(served: Served) -> None:
    assert httpx2.get(f"{served.url}/health", timeout=60).json() == {"alive": True}
    assert httpx2.get(f"{served.url}/health/ready", timeout=60).json() == {"ready": True}


@pytest.mark.slow
def test_a_meta_database_that_is_gone_ends_readiness_and_not_health(tmp_path: Path) -> None:
    """A probe that restarts the process would restart it for somebody else's outage."""

    def ping() -> None:
        raise ServiceError("the meta database does not answer")

    with serving(tmp_path, ping=ping) as served:
        assert httpx2.get(f"{served.url}/health", timeout=60).status_code == 200
        assert httpx2.get(f"{served.url}/health/ready", timeout=60).status_code == 503


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["subscribe", "api_key"])
def test_a_meta_database_that_fails_is_told_by_503(served: Served, tmp_path: Path, lost: str) -> None:
    with closing(sqlite3.connect(tmp_path / "meta.db")) as database:
        database.execute(f"DROP TABLE {lost}")
    for method, path, body in (
        ("GET", "/v1/subscriptions", None),
        ("GET", ONE, None),
        ("POST", "/v1/subscriptions?check=false", BODY),
        ("POST", f"{ONE}/pause", None),
        ("POST", "/v1/sql", {"statement": "SHOW SUBSCRIPTIONS"}),
    ):
        answer = ask(served, Role.ADMIN, method, path, body)
        assert (answer.status_code, "the meta database" in answer.json()["detail"]) == (503, True)


@pytest.mark.slow
def test_connections_that_say_nothing_end_and_shut_nobody_out(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Impatient, "seconds", 0.3)
    parts = urlsplit(served.url)
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection((parts.hostname, parts.port), 60)) for _ in range(70)]
        silent[0].sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")  # and says nothing more
        silent[1].sendall(b"GET /health HTTP/1.1\r\nX-Slow: ")
        for connection in silent:
            while connection.recv(4096):
                pass
        assert httpx2.get(f"{served.url}/health", timeout=60).status_code == 200


@pytest.mark.slow
@pytest.mark.promise("subscription.rate-limits")
@pytest.mark.parametrize(("proxies", "ended"), [((), True), (("127.0.0.1",), False)])
def test_connections_of_one_address_shut_out_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxies: tuple[str, ...], ended: bool
) -> None:
    """But for a proxy's, behind which are many."""
    monkeypatch.setattr(Impatient, "seconds", 60)
    with serving(tmp_path, proxies=proxies) as served, ExitStack() as stack:
        parts = urlsplit(served.url)
        silent = [stack.enter_context(socket.create_connection((parts.hostname, parts.port), 60)) for _ in range(70)]
        other = stack.enter_context(httpx2.Client(transport=httpx2.HTTPTransport(local_address="127.0.0.2")))
        assert other.get(f"{served.url}/health", timeout=60).status_code == (200 if ended else 503)
        if ended:
            assert silent[-1].recv(1) == b""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("proxies", "host"), [((), "127.0.0.1"), (("127.0.0.1",), "192.0.2.7"), (("10.0.0.0/8",), "127.0.0.1")]
)
def test_where_a_caller_is_from_is_told_by_the_proxies_of_the_settings_alone(
    tmp_path: Path, proxies: tuple[str, ...], host: str
) -> None:
    """Else who guesses keys is another stranger each time, and the audit names whom they like."""
    with serving(tmp_path, proxies=proxies, authentication=False) as served:
        headers = {"X-Forwarded-For": "192.0.2.7"}
        made = httpx2.post(f"{served.url}/v1/subscriptions", json=BODY, headers=headers, timeout=60)
        assert made.status_code == 201
        [row] = httpx2.get(f"{served.url}/v1/audit", timeout=60).json()
        assert row["who"] == f"anybody@{host}"
