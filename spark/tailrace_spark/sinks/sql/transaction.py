"""A transaction whose failure is reported as the sink's: what the database said, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from tailrace_spark.sinks.state_store.engine import failure, remedy


@contextmanager
def transaction(engine: sa.Engine, location: str, otherwise: str) -> Iterator[sa.Connection]:
    """`location` names the database without secrets, `otherwise` says what a failure comes to. Raises ServiceError."""
    try:
        with engine.begin() as connection:
            yield connection
    except SQLAlchemyError as error:
        raise failure("sink", location, error, f"{remedy(error)}; {otherwise}") from error
