"""Tables of up to 222 characters, which Cassandra has. The first revision makes columns of this size by now."""

from __future__ import annotations

from tailrace_server.meta.migrations.alterations import widen
from tailrace_server.meta.tables import exact

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Of the database of an earlier version."""
    widen("subscribe", "table_name", exact(222))
    widen("audit", "subject", exact(400))
