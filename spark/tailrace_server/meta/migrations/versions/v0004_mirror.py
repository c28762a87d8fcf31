"""The outbox of the mirror, and who publishes it."""

from __future__ import annotations

import sqlalchemy as sa

from tailrace_server.meta.migrations.alterations import add_column, create_table
from tailrace_server.meta.tables import exact

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Every subscription that exists is still to be mirrored."""
    for name, default in (("changes", "1"), ("mirrored", "0")):
        add_column("subscribe", sa.Column(name, sa.BigInteger, nullable=False, server_default=sa.text(default)))
    create_table(
        "mirror",
        sa.Column("cluster", exact(100), primary_key=True),
        sa.Column("owner", exact(200)),
        sa.Column("lease_until", sa.BigInteger, nullable=False),
    )
