"""How far snapshots are, in place of a table that nobody wrote."""

from __future__ import annotations

import sqlalchemy as sa

from tailrace_server.meta.migrations.alterations import create_table, drop_table
from tailrace_server.meta.tables import long_text

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the one, and remove the other."""
    create_table(
        "snapshot_progress",
        sa.Column("subscription", sa.Integer, sa.ForeignKey("subscribe.id"), primary_key=True, autoincrement=False),
        sa.Column("ranges", long_text(), nullable=False),
        sa.Column("changed", sa.BigInteger, nullable=False),
    )
    drop_table("range_progress")
