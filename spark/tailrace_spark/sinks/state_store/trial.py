"""What a stream does to a database besides writing rows, tried: whether the user may. Nothing of it stays."""

from __future__ import annotations

from collections.abc import Callable
from secrets import token_hex
from typing import Final

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from tailrace_schemas.errors import ServiceError
from tailrace_spark.sinks.state_store.dialects import MYSQL, SQLITE
from tailrace_spark.sinks.state_store.engine import is_pooled, remedy, said

_STEPS: Final = (
    "CREATE TABLE {} (k INTEGER)",
    "ALTER TABLE {} ADD COLUMN v INTEGER",
    "CREATE INDEX {}_index ON {} (k)",
    "CREATE VIEW {}_view AS SELECT k FROM {}",
    "CREATE TEMPORARY TABLE {}_staged (k INTEGER)",
    "INSERT INTO {} (k) VALUES (1)",
    "UPDATE {} SET v = 2 WHERE k = 1",
    "DELETE FROM {} WHERE k = 1",
)
_DROPS: Final = ("DROP VIEW IF EXISTS {}_view", "DROP TABLE IF EXISTS {}")
_POOLED: Final = "a pooler stands before it: no statement is prepared; pool_mode may be session or transaction"


def try_out(engine: sa.Engine, subject: str, make: Callable[[sa.Connection], None]) -> str:
    """As TrialSink says. `make` makes the tables of ours that are missing; `subject` names the database in errors.

    MySQL commits each step, so `make` is left out there, and what else is made is dropped again. A file of SQLite is
    whoever's may write it.
    """
    if engine.dialect.name == SQLITE:
        return ""
    try:
        with engine.connect() as connection:  # and no commit
            if engine.dialect.name != MYSQL:
                make(connection)
            _try_definitions(connection)
            return _POOLED if is_pooled(connection) else ""
    except SQLAlchemyError as error:
        raise ServiceError(f"{subject}: {said(error)}{remedy(error)}") from error


def _try_definitions(connection: sa.Connection) -> None:
    name, drops = f"tailrace_check_{token_hex(4)}", _DROPS if connection.dialect.name == MYSQL else ()
    try:
        for statement in (*drops, *_STEPS):
            connection.exec_driver_sql(statement.replace("{}", name))
    finally:
        for statement in drops:
            connection.exec_driver_sql(statement.replace("{}", name))
