"""The first tables. A new database gets those of today at once, so nothing makes these any more."""

from __future__ import annotations

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Nothing: whoever comes this way has them."""
