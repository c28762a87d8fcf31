"""Which tables of a pattern a subscription goes without, and why."""

from __future__ import annotations

import sqlalchemy as sa

from tailrace_server.meta.migrations.alterations import add_column
from tailrace_server.meta.tables import long_text

revision = "0005"
down_revision = "0003"


def upgrade() -> None:
    """Workers say so when they run a subscription next."""
    add_column("subscribe", sa.Column("left_out", long_text()))
