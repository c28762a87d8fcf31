"""The database's own clock, in milliseconds since 1970: leases count by it, however workers' clocks differ."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement


class now(FunctionElement[int]):
    """The time of the statement."""

    inherit_cache = True
    type = sa.BigInteger()


@compiles(now, "sqlite")
def _sqlite(_element: now, _compiler: Any, **_: Any) -> str:
    return "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"


@compiles(now, "postgresql")
def _postgresql(_element: now, _compiler: Any, **_: Any) -> str:
    return "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)"


@compiles(now, "mysql")
@compiles(now, "mariadb")
def _mysql(_element: now, _compiler: Any, **_: Any) -> str:
    return "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)"
