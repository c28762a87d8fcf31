"""What differs by database: names of dialects, types of columns of bytes, literals."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

SQLITE: Final = "sqlite"
POSTGRESQL: Final = "postgresql"
MYSQL: Final = "mysql"  # MariaDB too
DIALECTS: Final = (SQLITE, POSTGRESQL, MYSQL)
# InnoDB indexes 3072 bytes; PostgreSQL about 2700, which it checks itself.
KEY_BYTES: Final = sa.LargeBinary().with_variant(mysql.VARBINARY(1024), MYSQL)
CLUSTERING_BYTES: Final = sa.LargeBinary().with_variant(mysql.VARBINARY(2048), MYSQL)
STATE_BYTES: Final = sa.LargeBinary().with_variant(mysql.LONGBLOB(), MYSQL)
MYSQL_TABLE: Final[dict[str, Any]] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}
MYSQL_TEXTS: Final = ("LONGTEXT", "LONGBLOB")


def bytes_literal(value: bytes, dialect: str) -> sa.ColumnElement[bytes]:
    """Bytes that stand in the statement itself, so that PostgreSQL sees that an index's condition holds."""
    return sa.literal_column(f"'\\x{value.hex()}'::bytea" if dialect == POSTGRESQL else f"x'{value.hex()}'")
