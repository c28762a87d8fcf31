"""The operations by the HTTP API of a server."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final
from urllib.parse import quote

import httpx2

from tailrace_common.closing import Closing
from tailrace_common.secrets import authorization, origin
from tailrace_schemas.errors import ServiceError, SettingsError, TailraceError
from tailrace_schemas.topics import KafkaPartition
from tailrace_server.model.subscription import ConflictError, RefusedRequestError, UnknownSubscriptionError
from tailrace_server.operations.answers import Answer
from tailrace_server.operations.asking import Asked, require_plain
from tailrace_server.operations.operations import Alteration, resolved
from tailrace_spark.batch.delivery import by_topic

_SECONDS: Final = 30.0
_MOST_TRIES: Final = 10
_LONGEST_WAIT: Final = 30.0
_ERRORS: Final[Mapping[int, type[TailraceError]]] = {
    401: SettingsError,
    403: SettingsError,
    404: UnknownSubscriptionError,
    409: ConflictError,
    422: RefusedRequestError,
}


class RemoteOperations(Closing):
    """As `Operations` says, by HTTP. Raises ServiceError too where the server does not answer."""

    def __init__(self, url: str, key: str | None, wait: Callable[[float], None] = time.sleep) -> None:
        """`url` is the server's address, such as http://127.0.0.1:8085; `key` an API key or a token.

        `wait` lets seconds pass where the server asks for that.
        """
        self._url = url.rstrip("/")
        self._wait = wait
        headers = {} if key is None else authorization("Bearer", key, "the API key")
        try:
            self._client = httpx2.Client(base_url=f"{self._url}/v1", headers=headers, timeout=_SECONDS)
        except (httpx2.InvalidURL, ValueError) as error:
            raise SettingsError(f"--server {origin(url)}: {error}") from None

    def close(self) -> None:
        """Leave the server."""
        self._client.close()

    def subscribe(self, spec: Asked, *, check: bool = True) -> tuple[Answer, bool]:
        answer = self._asked("POST", f"/subscriptions?check={str(check).lower()}", _body(spec))
        return answer.json(), answer.status_code == 201

    def declare(self, spec: Asked, *, dry_run: bool = False, check: bool = True, paused: bool = False) -> Answer:
        chosen = {"dry_run": dry_run, "check": check, "paused": paused}
        path = f"/subscriptions?{'&'.join(f'{name}={value}'.lower() for name, value in chosen.items())}"
        declared: Answer = self._asked("PUT", path, _body(spec)).json()
        return declared

    def all(self, *, cancelled: bool = False) -> Sequence[Answer]:
        listed: list[Answer] = self._asked("GET", f"/subscriptions?cancelled={str(cancelled).lower()}").json()
        return listed

    def details(self, reference: str) -> Answer:
        return self._one("GET", reference)

    def pause(self, reference: str) -> Answer:
        return self._one("POST", reference, "/pause")

    def resume(self, reference: str) -> Answer:
        return self._one("POST", reference, "/resume")

    def cancel(self, reference: str) -> Answer:
        return self._one("DELETE", reference)

    def alter(self, reference: str, alteration: Alteration, *, check: bool = True) -> Answer:
        return self._one("PATCH", reference, f"?check={str(check).lower()}", _body(alteration))

    def reset(
        self,
        reference: str,
        start: str | None = None,
        offsets: Mapping[KafkaPartition, int] | None = None,
        *,
        snapshot: bool = False,
    ) -> Answer:
        chosen = None if offsets is None else by_topic(offsets)
        return self._one("POST", reference, "/reset", {"start": start, "snapshot": snapshot, "offsets": chosen})

    def audit(self, reference: str | None, limit: int) -> Sequence[Answer]:
        subject = "" if reference is None else f"&reference={quote(reference, safe='')}"
        rows: list[Answer] = self._asked("GET", f"/audit?limit={limit}{subject}").json()
        return rows

    def _one(self, method: str, reference: str, operation: str = "", body: object = None) -> Answer:
        if "/" not in reference:
            reference = resolved(reference, {str(answer["reference"]): answer for answer in self.all()})
        table, _, name = reference.partition("/")
        path = f"/subscriptions/{quote(table, safe='')}/{quote(name, safe='')}{operation}"
        answer: Answer = self._asked(method, path, body).json()
        return answer

    def _asked(self, method: str, path: str, body: object = None) -> httpx2.Response:
        answer = self._patiently(method, path, body)
        if answer.is_success:
            return answer
        words = _words(answer)
        if answer.status_code in (401, 403):
            words += "; give the key by TAILRACE_API_KEY or --api-key-file"
        raise _ERRORS.get(answer.status_code, ServiceError)(words)

    def _patiently(self, method: str, path: str, body: object) -> httpx2.Response:
        """The answer, once the server takes the request: it bounds how often a caller may ask."""
        for _ in range(_MOST_TRIES):
            try:
                answer = self._client.request(method, path, json=body)
            except httpx2.HTTPError as error:
                raise ServiceError(f"the server {origin(self._url)} does not answer: {error}") from None
            if answer.status_code != 429:
                break
            seconds = answer.headers.get("Retry-After", "")
            self._wait(min(float(seconds), _LONGEST_WAIT) if seconds.isdecimal() else 1.0)
        return answer


def _body(spec: Asked | Alteration) -> dict[str, Any]:
    """What is sent of it. Raises RefusedRequestError for what JSON has no form for."""
    body = asdict(spec)
    require_plain(body)
    return body


def _words(answer: httpx2.Response) -> str:
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"the server answered {answer.status_code}"
