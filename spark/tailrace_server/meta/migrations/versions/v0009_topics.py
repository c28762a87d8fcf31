"""What is known of the topics that a subscription reads: their ids, and their readings."""

from __future__ import annotations

import sqlalchemy as sa

from tailrace_server.meta.migrations.alterations import add_column
from tailrace_server.meta.tables import long_text

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """What was read so far is the first reading, of topics whose ids nobody has noted."""
    add_column("subscribe", sa.Column("topics", long_text()))
