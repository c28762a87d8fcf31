"""When what has failed is tried again, and how much room workers have."""

from __future__ import annotations

import sqlalchemy as sa

from tailrace_server.meta.migrations.alterations import add_column

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """What fails is tried at once; workers say at their next beat what room they have."""
    add_column("subscribe", sa.Column("retry_at", sa.BigInteger))
    add_column("worker", sa.Column("room", sa.Integer, nullable=False, server_default="0"))
