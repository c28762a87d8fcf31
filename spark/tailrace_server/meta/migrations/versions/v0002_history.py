"""Totals of the last hour, for charts."""

from __future__ import annotations

import sqlalchemy as sa

from tailrace_server.meta.migrations.alterations import create_table

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the table."""
    create_table(
        "progress_history",
        sa.Column("subscription", sa.Integer, sa.ForeignKey("subscribe.id"), primary_key=True, autoincrement=False),
        sa.Column("taken", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("reached", sa.BigInteger, nullable=False),
        sa.Column("behind", sa.BigInteger),
        sa.Column("partitions", sa.Integer, nullable=False),
    )
