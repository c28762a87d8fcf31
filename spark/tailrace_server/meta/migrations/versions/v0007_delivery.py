"""What sinks have of subscriptions, beyond offsets."""

from __future__ import annotations

import sqlalchemy as sa

from tailrace_server.meta.migrations.alterations import create_table

revision = "0007"
down_revision = "0005"


def upgrade() -> None:
    """Workers fill it with what they write next; dead letters of before are counted once somebody lists them."""
    create_table(
        "delivery",
        sa.Column("subscription", sa.Integer, sa.ForeignKey("subscribe.id"), primary_key=True, autoincrement=False),
        sa.Column("written", sa.BigInteger),
        sa.Column("complete_to", sa.BigInteger),
        sa.Column("letters", sa.BigInteger, nullable=False),
        sa.Column("letters_since", sa.BigInteger),
    )
