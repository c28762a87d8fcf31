"""Spark's properties of subscriptions that run in an application of their own."""

from __future__ import annotations

import sqlalchemy as sa

from tailrace_server.meta.migrations.alterations import add_column
from tailrace_server.meta.tables import long_text

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Those that exist go on in the applications of their workers."""
    add_column("subscribe", sa.Column("spark", long_text()))
