"""How long the meta database may take: to be connected to, and for each answer. One that hangs is one that is down."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

import sqlalchemy as sa

SECONDS: Final = 5
"""Of each step. A call that finds its pooled connection dead connects anew, so it takes two at the most."""
_BY_DIALECT: Final[dict[str, dict[str, int]]] = {
    "sqlite": {"timeout": 2 * SECONDS},  # a file never hangs: others write
    "postgresql": {"connect_timeout": SECONDS, "tcp_user_timeout": 1000 * SECONDS},
    "mysql": {"connect_timeout": SECONDS, "read_timeout": SECONDS, "write_timeout": SECONDS},
}
T = TypeVar("T")


def bound(engine: sa.Engine) -> None:
    """Give each connection and each statement of an engine its time-outs."""
    limits, is_postgresql = _BY_DIALECT[engine.dialect.name], engine.dialect.name == "postgresql"

    @sa.event.listens_for(engine, "do_connect")
    def _connect(dialect: sa.Dialect, _record: object, words: list[Any], values: dict[str, Any]) -> Any:
        connection: Any = dialect.connect(*words, **{**values, **limits})
        if is_postgresql:
            connection.wait = partial(_answered, connection, connection.wait)
        return connection

    if is_postgresql:

        @sa.event.listens_for(engine, "begin")
        def _begin(connection: sa.Connection) -> None:
            connection.exec_driver_sql(f"SET LOCAL statement_timeout = {1000 * SECONDS}")


def _answered(connection: Any, wait: Callable[..., T], steps: object, **how: Any) -> T:
    """As psycopg waits for an answer, but no longer: the server's own time-out does not reach us where a network hangs,
    and TCP's does not where a proxy keeps the connection alive."""
    try:
        return wait(steps, **{"timeout": SECONDS + 1, **how})
    except Exception:
        if connection.info.transaction_status.name == "ACTIVE":
            connection.close()  # the answer to come would be taken for the next question's
        raise
