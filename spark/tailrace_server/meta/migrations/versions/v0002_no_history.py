"""Drops what charts of the page were made from: its rows name subscriptions, so no backup could replace these."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Drop it. MySQL keeps that, and not the revision, where a crash comes between."""
    op.drop_table("progress_history", if_exists=True)
