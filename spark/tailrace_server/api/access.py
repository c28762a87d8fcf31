"""Who asks, and whether they may: API keys in the header Authorization, and the size of what they send."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import Depends, HTTPException, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from tailrace_server.meta.keys import ApiKeys, Caller, Role
from tailrace_server.operations.operations import Operations

OperationsFor = Callable[[str], Operations]
"""The operations in somebody's name."""

PREFIX: Final = "/v1"
ANYBODY: Final = "anybody"
_bearer: Final = HTTPBearer(auto_error=False, description="A key of `tailrace api-keys add`")


def requires(keys: ApiKeys | None, needed: Role) -> Callable[..., Caller]:
    """A dependency that gives the caller. Without `keys` everybody on this machine may do everything."""

    def caller(
        request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)] = None
    ) -> Caller:
        if keys is None:
            host = request.client.host if request.client is not None else "?"
            return Caller(f"{ANYBODY}@{host}", Role.ADMIN)
        holder = None if credentials is None else keys.caller(credentials.credentials)
        if holder is None:
            raise HTTPException(
                401, "an API key is needed: Authorization: Bearer KEY", headers={"WWW-Authenticate": "Bearer"}
            )
        named = Caller(f"key {holder.name}", holder.role)
        require_role(named, needed)
        return named

    return caller


def require_role(caller: Caller, needed: Role) -> None:
    """Refuse with 403 who may not."""
    if not caller.role.may(needed):
        raise HTTPException(403, f"the {caller.name} has the role {caller.role}, and this needs {needed}")


class BodyLimit:
    """ASGI: a request whose body is larger is refused with 413, before all of it is read."""

    def __init__(self, app: Any, most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """As ASGI has it."""
        count = 0

        async def limited() -> Any:
            nonlocal count
            message = await receive()
            count += len(message.get("body", b""))
            if count > self._most:
                raise HTTPException(413, f"the body has more than {self._most} bytes (server.most_body_bytes)")
            return message

        await self._app(scope, limited, send)
