"""When what has failed is tried again, how much room workers have, and who has signed in on the page."""

from __future__ import annotations

import sqlalchemy as sa

from tailrace_server.meta.migrations.alterations import add_column, create_table
from tailrace_server.meta.tables import exact, long_text

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """What fails is tried at once; workers say at their next beat what room they have."""
    add_column("subscribe", sa.Column("retry_at", sa.BigInteger))
    add_column("worker", sa.Column("room", sa.Integer, nullable=False, server_default="0"))
    create_table(
        "session",
        sa.Column("digest", exact(64), primary_key=True),
        sa.Column("until", sa.BigInteger, nullable=False),
        sa.Column("holder", long_text(), nullable=False),
    )
