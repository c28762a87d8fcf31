"""Who asks, and whether they may: API keys and tokens in the header Authorization, and the size of what they send."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from fastapi import Depends, HTTPException, Request
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from tailrace_server.api.metrics import ServerMetrics
from tailrace_server.meta.credentials import ApiKeys, Caller, Role, is_api_key
from tailrace_server.oidc.sign_in import SignIn
from tailrace_server.oidc.tokens import RefusedTokenError, Tokens
from tailrace_server.operations.operations import Operations

OperationsFor = Callable[[str], Operations]
"""The operations in somebody's name."""

PREFIX: Final = "/v1"
ANYBODY: Final = "anybody"
_BODY_SECONDS: Final = 30.0
_OF_AN_ADDRESS: Final = 4
_bearer: Final = HTTPBearer(
    auto_error=False, description="A key of `tailrace api-keys add`, or a token of server.oidc.issuer"
)
MOST_NAMES: Final = 10_000
"""So many callers are remembered, those that asked last: addresses of strangers are among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """By what callers are known, and how often each may ask. Without `keys` everybody may do everything.

    `sign_in` is the page's, by an issuer.
    """

    keys: ApiKeys | None
    tokens: Tokens | None = None
    sign_in: SignIn | None = None
    limit: RateLimit | None = None
    metrics: ServerMetrics = field(default_factory=ServerMetrics)

    def caller(self, request: Request, bearer: str | None) -> Caller:
        """Who asks. Raises HTTPException, and ServiceError where that cannot be looked up now."""
        try:
            caller = self._known(request, bearer)
        except HTTPException:
            self.admit(f"address {host_of(request)}")  # who only guesses gets no further
            raise
        self.admit(caller.name)
        return caller

    def admit(self, name: str, limit: RateLimit | None = None) -> None:
        """Count a request of somebody, by another limit than a caller's. Raises HTTPException 429 where that are too
        many."""
        chosen = limit or self.limit
        seconds = 0.0 if chosen is None else chosen.wait(name)
        if seconds:
            self.metrics.limited(name.replace("@", " ").partition(" ")[0])
            words = f"too many requests: come again in {seconds:.1f} s (server.requests_per_second, requests_burst)"
            raise HTTPException(429, words, headers={"Retry-After": str(math.ceil(seconds))})

    def _known(self, request: Request, bearer: str | None) -> Caller:
        if self.keys is None:
            return Caller(f"{ANYBODY}@{host_of(request)}", Role.ADMIN)
        if bearer is not None and self.tokens is not None and not is_api_key(bearer):
            try:
                return self.tokens.caller(bearer)
            except RefusedTokenError as error:
                raise _refusal(str(error), error.status, 'Bearer error="invalid_token"') from None
        if bearer is None:
            token = "" if self.tokens is None else ", or a token of this server's issuer"
            raise _refusal(f"an API key is needed: Authorization: Bearer KEY{token}", 401, "Bearer")
        holder = self.keys.caller(bearer)
        if holder is None:
            words = "this API key is unknown or was revoked: take another, as `tailrace api-keys add` makes them"
            raise _refusal(words, 401, 'Bearer error="invalid_token"')
        return Caller(f"key {holder.name}", holder.role)


def host_of(request: Request) -> str:
    """The address that a request comes from."""
    return request.client.host if request.client is not None else "?"


def _refusal(words: str, status: int, challenge: str) -> HTTPException:
    return HTTPException(status, words, headers={"WWW-Authenticate": challenge} if status == 401 else None)


def requires(access: Access, needed: Role) -> Callable[..., Caller]:
    """A dependency that gives the caller."""

    def caller(
        request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)] = None
    ) -> Caller:
        caller = access.caller(request, None if credentials is None else credentials.credentials)
        require_role(caller, needed)
        _require_known_parameters(request)
        return caller

    return caller


def _require_known_parameters(request: Request) -> None:
    """Refuse with 422 a parameter that the route does not take: whoever gives one means something by it."""
    route: APIRoute = request.scope["route"]
    parameters = [parameter.alias for parameter in route.dependant.query_params]
    for name in request.query_params:
        if name not in parameters:
            raise HTTPException(422, f"{name}: unknown parameter; this request takes {', '.join(parameters) or 'none'}")


def require_role(caller: Caller, needed: Role) -> None:
    """Refuse with 403 who may not."""
    if not caller.role.may(needed):
        raise HTTPException(403, f"the {caller.name} has the role {caller.role}, and this needs {needed}")


class AddressLimit:
    """ASGI: bounds the requests of an address, whoever sends them, at some times what a caller may ask.

    An address is the client's, or what a proxy of server.proxies says. `/health` is for supervisors at any time.
    """

    def __init__(self, app: Any, access: Access) -> None:
        self._app = app
        self._access = access
        self._limit = None if access.limit is None else access.limit.times(_OF_AN_ADDRESS)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """As ASGI has it."""
        answer = self._app
        if scope["type"] == "http" and scope["path"] != "/health":
            try:
                self._access.admit(f"address {host_of(Request(scope))}", self._limit)
            except HTTPException as error:
                answer = JSONResponse({"detail": error.detail}, error.status_code, error.headers)
        await answer(scope, receive, send)


class BodyLimit:
    """ASGI: refuses a request whose body is larger with 413, before all of it is read, and one that drips with 408."""

    def __init__(self, app: Any, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """As ASGI has it."""
        count, deadline, is_whole = 0, asyncio.get_running_loop().time() + _BODY_SECONDS, False

        async def limited() -> Any:
            nonlocal count, is_whole
            if is_whole:
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, f"the body has not come within {_BODY_SECONDS:g} s") from None
            is_whole = not message.get("more_body", False)
            count += len(message.get("body", b""))
            if count > self._max_bytes:
                raise HTTPException(413, f"the body has more than {self._max_bytes} bytes (server.most_body_bytes)")
            return message

        await self._app(scope, limited, send)


class RateLimit:
    """Takes a token for each request. Any thread may ask."""

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float]) -> None:
        """At most `burst` requests at once, then so many a second; `clock` is monotonic, in seconds."""
        self._per_second = per_second
        self._burst = float(burst)
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def times(self, factor: int) -> RateLimit:
        """Another one, which allows so many times as much."""
        return RateLimit(factor * self._per_second, factor * int(self._burst), self._clock)

    def wait(self, name: str) -> float:
        """0 where a caller may ask now; else in how many seconds. Asking too early costs nothing more."""
        with self._lock:
            now = self._clock()
            tokens, filled = self._buckets.pop(name, (self._burst, now))
            tokens = min(self._burst, tokens + (now - filled) * self._per_second)
            missing = max(0.0, 1 - tokens)
            self._buckets[name] = (tokens if missing else tokens - 1, now)
            if len(self._buckets) > MOST_NAMES:
                self._buckets.popitem(last=False)
            return missing / self._per_second
