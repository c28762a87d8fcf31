"""Drops what charts of the page were made from: its rows name subscriptions, so no backup could replace these."""

from __future__ import annotations

from tailrace_server.meta.migrations.making import drop_table

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Drop it, where an earlier version has made it."""
    drop_table("progress_history")
