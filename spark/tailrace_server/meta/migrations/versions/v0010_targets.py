"""Subscriptions name a target of the servers' settings; settings of sinks, and their secrets, are not kept any more."""

from __future__ import annotations

from tailrace_server.meta.migrations.alterations import drop_column, fill_column, rename_column

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """What was subscribed before names no target: its worker says so, and `tailrace alter` gives it one."""
    rename_column("subscribe", "shown", "options")
    fill_column("subscribe", "options", "{}")
    drop_column("subscribe", "sealed")
