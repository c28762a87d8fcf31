"""The few requests of OpenSearch's API that the sink makes: tried again while that may help, refusals told apart."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final
from urllib.parse import quote

import httpx2

from tailrace_common.backoff import WAITS, RetryableError, RetryPolicy, Waits, retry_after
from tailrace_common.secrets import authorization
from tailrace_common.tls import tls_context
from tailrace_common.unreachable import unreachable
from tailrace_schemas.errors import ServiceError
from tailrace_spark.sinks.opensearch.bulk import STATE, BulkResult, Op, StoredDocument, lines, stored_document
from tailrace_spark.sinks.opensearch.settings import OpensearchSinkSettings
from tailrace_spark.sinks.table_faults import TableRefusedError

_TRIED_AGAIN: Final = frozenset({408, 429, 502, 503, 504})
_TOO_LARGE: Final = 413
_CONFLICT: Final = 409
_REFUSED: Final = 400  # every request is about one table
_SHOWN: Final = 300
_SCROLL: Final = "5m"
# All that is read of an answer: the rest of it would be decoded for nothing. Items come in the operations' order.
_OF_ITEMS: Final = "filter_path=error," + ",".join(
    f"items.*.{member}" for member in ("status", "_seq_no", "_primary_term", "error")
)
_OF_DOCUMENTS: Final = "filter_path=error," + ",".join(
    f"docs.{member}" for member in ("_id", "_index", "found", "_seq_no", "_primary_term", "fields", "_source", "error")
)
_PAGE: Final = 1000
# Reading the system's authorities takes 30 ms of CPU, which each task of a batch would pay again.
_system_trust: Final = cache(httpx2.create_ssl_context)


@dataclass(frozen=True, slots=True)
class SearchCluster:
    """A cluster as [sink.NAME] says it. It is pickled, and its settings have secrets."""

    name: str
    settings: OpensearchSinkSettings = field(repr=False)
    waits: Waits = WAITS

    def connect(self) -> SearchClient:
        """A client of its own. Raises SettingsError for certificates that are none."""
        return SearchClient(self.name, self.settings, waits=self.waits)


class SearchClient:
    """One cluster. Several threads may ask at once."""

    def __init__(self, name: str, settings: OpensearchSinkSettings, *, waits: Waits = WAITS) -> None:
        """`name` is that of [sink.NAME], for messages. Raises SettingsError for a key or certificates that are none."""
        self.cluster: Final = SearchCluster(name, settings, waits)
        self._settings = settings
        self._retry = RetryPolicy(settings.retry_seconds, waits)
        ca_file = settings.tls_ca_file
        self._client = httpx2.Client(
            headers=_authorization(name, settings),
            timeout=settings.timeout_seconds,
            verify=_system_trust() if ca_file is None else tls_context(f"sink.{name}", ca_file),
        )

    def reach(self) -> None:
        """See that a server of this API answers. Raises ServiceError."""
        answer = self.get("/")
        version = answer.get("version") if isinstance(answer, dict) else None
        if not isinstance(version, dict) or "number" not in version:
            raise self._failed("what answers there is neither OpenSearch nor Elasticsearch: look at url")

    def get(self, path: str) -> Any:
        """The answer of a GET as JSON; None where there is no such thing. Raises ServiceError."""
        return self._json("GET", path, None, absent=True)

    def put(self, path: str, body: Any) -> Any:
        """The answer of a PUT as JSON. Raises ServiceError, with what the server says, where it refuses."""
        return self._json("PUT", path, body)

    def post(self, path: str, body: Any = None) -> Any:
        """The same of a POST."""
        return self._json("POST", path, body)

    def delete(self, path: str) -> None:
        """Take away what may not be there. Raises ServiceError."""
        self._json("DELETE", path, None, absent=True)

    def documents(self, index: str, ids: Sequence[str], *, source: bool = False) -> dict[str, StoredDocument]:
        """These documents, the newest whether searches see them yet or not; those that are not there are left out."""
        path = f"/{name(index)}/_mget?stored_fields={STATE}&_source={json.dumps(source)}&{_OF_DOCUMENTS}"
        documents: dict[str, StoredDocument] = {}
        for start in range(0, len(ids), self._settings.bulk_documents):
            body = {"ids": ids[start : start + self._settings.bulk_documents]}
            answer = self._json("POST", path, body, check=self._require_answers)
            documents |= {hit["_id"]: stored_document(hit) for hit in answer["docs"] if hit["found"]}
        return documents

    def search(self, index: str, query: Mapping[str, Any], *, source: bool = False) -> Iterator[list[StoredDocument]]:
        """All documents of a query as they were when it began, in pages and in no order. `refresh` before."""
        body = {
            "query": query, "size": _PAGE, "sort": ["_doc"], "seq_no_primary_term": True, "_source": source,
            "stored_fields": [STATE],
        }  # fmt: skip
        answer = self.post(f"/{name(index)}/_search?scroll={_SCROLL}", body)
        scroll = answer["_scroll_id"]
        try:
            while hits := answer["hits"]["hits"]:
                self._require_whole(index, answer)
                yield [stored_document(hit) for hit in hits]
                if len(hits) < _PAGE:
                    break
                answer = self.post("/_search/scroll", {"scroll": _SCROLL, "scroll_id": scroll})
                scroll = answer["_scroll_id"]
            self._require_whole(index, answer)
        finally:
            with suppress(httpx2.RequestError):  # it ends by itself, later
                self._client.request("DELETE", self._settings.url + "/_search/scroll", json={"scroll_id": [scroll]})

    def refresh(self, index: str) -> None:
        """Let searches see all that was written."""
        self.post(f"/{name(index)}/_refresh")

    def remove(self, index: str, ops: Sequence[Op]) -> None:
        """Take documents away, each if it still has its version; whatever the write alias is by now."""
        if ops:
            self._bulk(f"/{name(index)}/_bulk?", index, ops, [lines(op) for op in ops], BulkResult())

    def bulk(self, alias: str, ops: Sequence[Op]) -> BulkResult:
        """Write documents, each by itself. Raises ServiceError where the server does not take some of them now."""
        path = f"/{name(alias)}/_bulk?require_alias=true&"
        written = BulkResult()
        encoded: list[bytes] = []
        some: list[Op] = []
        size = 0
        for op in ops:
            line = lines(op)
            if some and (
                size + len(line) > self._settings.bulk_kibibytes << 10 or len(some) >= self._settings.bulk_documents
            ):
                self._bulk(path, alias, some, encoded, written)
                encoded, some, size = [], [], 0
            encoded.append(line)
            some.append(op)
            size += len(line)
        if some:
            self._bulk(path, alias, some, encoded, written)
        return written

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _bulk(self, path: str, alias: str, ops: Sequence[Op], encoded: Sequence[bytes], written: BulkResult) -> None:
        pending = list(range(len(ops)))

        def send() -> None:
            nonlocal pending
            answer = self._request(
                "POST", path + _OF_ITEMS, b"".join([encoded[index] for index in pending]), "application/x-ndjson"
            )
            if answer.status_code == _TOO_LARGE:
                raise _TooLargeError
            again: list[int] = []
            words = ""
            items = self._decoded(answer)["items"]
            for index, item in zip(pending, items, strict=True):
                [result] = item.values()
                status, identity = result["status"], ops[index].id
                if status < 300:
                    written.done[identity] = (result["_seq_no"], result["_primary_term"])
                elif status == _CONFLICT or (status == 404 and "error" not in result):
                    written.conflicts.add(identity)
                elif status == 404:
                    written.unnamed[identity] = _said(result)
                elif status == 400:
                    written.refused[identity] = _said(result)
                elif status in _TRIED_AGAIN:
                    again.append(index)
                    words = _said(result)
                else:
                    raise self._failed(f"{alias}: HTTP {status}: {_said(result)}")
            pending = again
            if again:
                raise RetryableError(f"{alias}: {words}")

        try:
            self._patiently(send)
        except _TooLargeError:
            if len(ops) == 1:
                written.refused[ops[0].id] = f"the server takes no request of {len(encoded[0])} bytes"
                return
            half = len(ops) // 2
            self._bulk(path, alias, ops[:half], encoded[:half], written)
            self._bulk(path, alias, ops[half:], encoded[half:], written)

    def _json(
        self, method: str, path: str, body: Any, *, absent: bool = False, check: Callable[[Any], None] | None = None
    ) -> Any:
        content = None if body is None else json.dumps(body).encode()
        result: Any = None

        def send() -> None:
            nonlocal result
            answer = self._request(method, path, content, "application/json")
            result = None if absent and answer.status_code == 404 else self._decoded(answer)
            if check is not None:
                check(result)

        self._patiently(send)
        return result

    def _patiently(self, send: Callable[[], None]) -> None:
        try:
            self._retry.run(send)
        except RetryableError as error:
            fault = None
            if isinstance(error.__cause__, httpx2.RequestError):
                fault = unreachable(self._settings.location, str(error), "OpenSearch")
            raise fault or self._failed(str(error)) from error

    def _request(self, method: str, path: str, content: bytes | None, kind: str) -> Any:
        """The answer, if it is none of those after which the same is to be asked again."""
        headers = {} if content is None else {"Content-Type": kind}
        try:
            answer = self._client.request(method, self._settings.url + path, content=content, headers=headers)
        except httpx2.RequestError as error:
            raise RetryableError(str(error) or type(error).__name__) from error
        if answer.status_code in _TRIED_AGAIN:
            retry_seconds = retry_after(answer.headers.get("Retry-After"), lambda: datetime.now(UTC))
            asks = "" if retry_seconds is None else f"; it asks to come again in {retry_seconds:.0f} s"
            raise RetryableError(f"HTTP {answer.status_code}: {_text_of(answer)}{asks}", retry_seconds)
        return answer

    def _decoded(self, answer: Any) -> Any:
        try:
            decoded = answer.json()
        except ValueError:
            decoded = None
        if answer.status_code < 300 and decoded is not None:
            return decoded
        words = _said(decoded) if isinstance(decoded, dict) else _text_of(answer)
        if answer.status_code in (401, 403):
            advice = "look at username and password, or api_key, and what they may do"
            raise self._failed(f"HTTP {answer.status_code}: {words}; {advice}")
        if answer.status_code == _REFUSED:
            raise TableRefusedError(f"{self._settings.location}: HTTP {answer.status_code}: {words}")
        raise self._failed(f"HTTP {answer.status_code}: {words}")

    def _require_answers(self, answer: Mapping[str, Any]) -> None:
        """Of each document: the request succeeds also where shards are not there yet."""
        for document in answer["docs"]:
            if "error" in document:
                words = f"{document['_index']}: {_said(document)}"
                if document["error"].get("type") == "index_not_found_exception":
                    raise self._failed(words)
                raise RetryableError(words)

    def _require_whole(self, index: str, answer: Mapping[str, Any]) -> None:
        if answer["_shards"]["failed"] or answer["timed_out"]:
            raise self._failed(f"{index}: not all of its shards answer")

    def _failed(self, words: str) -> ServiceError:
        return ServiceError(f"{self._settings.location}: {words}")


class _TooLargeError(Exception):
    """HTTP 413: the request in smaller parts may be taken."""


def name(index: str) -> str:
    """An index's name as a part of a path."""
    return quote(index, safe="")


def _said(answer: Mapping[str, Any]) -> str:
    """What the server says of an error, with its causes."""
    error = answer.get("error")
    if not isinstance(error, dict):
        return str(error)[:_SHOWN]
    words = [str(error.get("reason") or error.get("type"))]
    while isinstance(error := error.get("caused_by"), dict):
        words.append(str(error.get("reason") or error.get("type")))
    return ": ".join(words)[:_SHOWN]


def _text_of(answer: httpx2.Response) -> str:
    # Not in the encoding that it names: some of Python's take no part of a text, and raise what they like.
    return answer.content.decode(errors="replace")[:_SHOWN]


def _authorization(name: str, settings: OpensearchSinkSettings) -> dict[str, str]:
    if settings.api_key is not None:
        return authorization("ApiKey", settings.api_key.get_secret_value(), f"sink.{name}.api_key")
    if settings.username is None or settings.password is None:
        return {}
    both = f"{settings.username}:{settings.password.get_secret_value()}".encode()
    return {"Authorization": f"Basic {base64.b64encode(both).decode()}"}
