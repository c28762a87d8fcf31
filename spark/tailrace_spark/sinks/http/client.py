"""One request after another to an HTTP endpoint: tried again while that may help, refusals told apart."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Final

import httpx2

from tailrace_common.backoff import WAITS, RetryableError, RetryPolicy, Waits, retry_after
from tailrace_common.secrets import authorization
from tailrace_common.tls import tls_context
from tailrace_common.unreachable import unreachable
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.sinks.http.settings import HttpSinkSettings

_TRIED_AGAIN: Final = frozenset({408, 429})
_SHOWN: Final = 200
# What an endpoint says beside its status is for people; it may say it without end, or a byte a second.
_MOST_READ: Final = 65_536
# Reading the system's authorities takes 30 ms of CPU, which each task of a batch would pay again.
_system_trust: Final = cache(httpx2.create_ssl_context)
_PREFIX: Final = "whsec_"


class OpenError(Exception):
    """The breaker is open: nothing is sent for `seconds` more."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class Breaker:
    """Any thread may use it. `clock` gives monotonic seconds."""

    def __init__(self, failures: int, seconds: float, clock: Callable[[], float]) -> None:
        self._limit = failures
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._until = 0.0
        self._probing = False

    def admit(self) -> None:
        """Ask before each request, and tell afterwards how it went. Raises OpenError.

        When the time is over one request is admitted, and the others wait for how it goes.
        """
        with self._lock:
            remaining = self._until - self._clock()
            if remaining > 0 or self._probing:
                raise OpenError(max(remaining, 0.0))
            self._probing = self._failures >= self._limit

    def succeeded(self) -> None:
        """A request was answered as it should be: the breaker closes."""
        with self._lock:
            self._failures, self._until, self._probing = 0, 0.0, False

    def failed(self) -> None:
        """A request failed."""
        with self._lock:
            self._failures += 1
            self._probing = False
            if self._failures >= self._limit:
                self._until = self._clock() + self._seconds


class RefusedError(Exception):
    """The endpoint will not have this request, however often it comes: a status 4xx, and what it says."""


class HttpSender:
    """Posts bodies to addresses of a section's host. Any thread may send; requests of one thread go in its order."""

    def __init__(self, name: str, settings: HttpSinkSettings, *, waits: Waits = WAITS) -> None:
        """`name` is that of [sink.NAME], for messages. Raises SettingsError for keys or certificates that are none."""
        self._settings = settings
        self._retry = RetryPolicy(settings.retry_seconds, waits)
        self._not_before = 0.0  # of time.monotonic: until then the endpoint wants nothing, from any thread
        self._breaker = Breaker(settings.breaker_failures, settings.breaker_seconds, time.monotonic)
        self._keys = _keys(name, settings)
        token, ca_file = settings.bearer_token, settings.tls_ca_file
        setting = f"sink.{name}.bearer_token"
        self._client = httpx2.Client(
            headers={} if token is None else authorization("Bearer", token.get_secret_value(), setting),
            timeout=settings.timeout_seconds,
            verify=_system_trust() if ca_file is None else tls_context(f"sink.{name}", ca_file),
            limits=httpx2.Limits(max_connections=settings.lanes, max_keepalive_connections=settings.lanes),
        )

    def reach(self, url: str) -> None:
        """See that something answers at an address: OPTIONS, whatever comes back. Raises ServiceError."""
        try:
            with self._client.stream("OPTIONS", url):
                pass  # what it says is not looked at, and may have no end
        except httpx2.RequestError as error:
            raise self._failed(error) from error

    def send(self, url: str, body: bytes, identity: str) -> None:
        """Post a JSON body to an address of the sink's host until it is taken.

        `identity` is the same for each time that the body is sent.

        Raises RefusedError, and ServiceError after retry_seconds, while the breaker is open, or where the endpoint
        asks for more patience than that.
        """
        try:
            self._retry.run(lambda: self._post(url, body, identity))
        except RetryableError as error:
            raise self._failed(error.__cause__ or error) from error
        except OpenError as error:
            words = f"nothing is sent for {error.seconds:.0f} s more, after failures in a row"
            raise ServiceError(f"{self._settings.location}: {words}") from error

    def _failed(self, error: BaseException) -> ServiceError:
        location, words = self._settings.location, _words(error)
        fault = unreachable(location, words, "the endpoint") if isinstance(error, httpx2.RequestError) else None
        return fault or ServiceError(f"{location}: {words}")

    def _post(self, url: str, body: bytes, identity: str) -> None:
        pause = self._not_before - time.monotonic()
        if pause > 0:
            raise RetryableError(f"it asks to come again in {pause:.0f} s", pause)
        self._breaker.admit()
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": identity,
            **signed_headers(self._keys, identity, int(time.time()), body),
        }
        try:
            with self._client.stream("POST", url, content=body, headers=headers) as answer:
                words = self._text_of(answer)
        except BaseException as error:  # whatever it is, or the breaker waits for this request for ever
            self._breaker.failed()
            if isinstance(error, httpx2.RequestError):
                raise RetryableError(_words(error)) from error
            raise
        status = answer.status_code
        if 200 <= status < 300:
            self._breaker.succeeded()
            return
        response = f"HTTP {status}{': ' if words else ''}{words[:_SHOWN]}"
        if 400 <= status < 500 and status not in _TRIED_AGAIN and status not in self._settings.hold_on:
            self._breaker.succeeded()  # it works, and does not want this
            raise RefusedError(response)
        retry_seconds = retry_after(answer.headers.get("Retry-After"), lambda: datetime.now(UTC))
        self._breaker.failed()
        if retry_seconds is not None:
            self._not_before = max(self._not_before, time.monotonic() + retry_seconds)
            response += f"; it asks to come again in {retry_seconds:.0f} s"
        raise RetryableError(response, retry_seconds)

    def _text_of(self, answer: httpx2.Response) -> str:
        """The text of an answer, as far as it comes within the seconds of an answer, and is not too long.

        A connection whose answer was not read to its end is closed, and not used again. The status counts all the same.
        """
        until, octets = time.monotonic() + self._settings.timeout_seconds, bytearray()
        for chunk in answer.iter_bytes():
            octets += chunk
            if len(octets) > _MOST_READ or time.monotonic() >= until:
                break
        # Not in the encoding that it names: some of Python's take no part of a text, and raise what they like.
        return octets.decode(errors="replace")

    def stop(self) -> None:
        """Let requests under way try no more: for the end of the process."""
        self._retry.end()

    def close(self) -> None:
        """Close the connections."""
        self.stop()
        self._client.close()


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _keys(name: str, settings: HttpSinkSettings) -> Sequence[bytes]:
    keys: list[bytes] = []
    for setting, key in (("signing_key", settings.signing_key), ("next_signing_key", settings.next_signing_key)):
        if key is not None:
            try:
                keys.append(key_bytes(key.get_secret_value()))
            except ValueError as error:
                raise SettingsError(f"sink.{name}.{setting}: {error}") from None
            if not keys[-1]:
                raise SettingsError(f"sink.{name}.{setting}: is empty: anybody could sign with it")
    return keys


def key_bytes(key: str) -> bytes:
    """The bytes of a signing key: base64 behind `whsec_`, else the text itself. Raises ValueError for no base64."""
    if not key.startswith(_PREFIX):
        return key.encode()
    try:
        return base64.b64decode(key.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        raise ValueError(f"what follows {_PREFIX} is not base64") from None


def signed_headers(keys: Sequence[bytes], identity: str, seconds: int, body: bytes) -> dict[str, str]:
    """The headers that name and sign a request: id, time (seconds since the epoch), a signature for each key.

    A signature is HMAC-SHA256 over `id.time.body`. With no keys there is none.
    """
    headers = {"webhook-id": identity, "webhook-timestamp": str(seconds)}
    if keys:
        content = f"{identity}.{seconds}.".encode() + body
        signatures = (base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode() for key in keys)
        headers["webhook-signature"] = " ".join(f"v1,{signature}" for signature in signatures)
    return headers
