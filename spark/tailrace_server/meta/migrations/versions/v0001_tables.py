"""The first tables; `tailrace_server.meta.tables` says what they are for."""

from __future__ import annotations

import sqlalchemy as sa

from tailrace_server.meta.migrations.making import create_table
from tailrace_server.meta.tables import exact, long_text

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make them."""
    _subscribe()
    _of_subscriptions()
    _of_servers()


def _subscribe() -> None:
    create_table(
        "subscribe",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("cluster", exact(100), nullable=False),
        sa.Column("keyspace_name", exact(100), nullable=False),
        sa.Column("table_name", exact(222), nullable=False),
        sa.Column("name", exact(64), nullable=False),
        sa.Column("ended", sa.Integer, nullable=False),
        sa.Column("sink_type", exact(64), nullable=False),
        sa.Column("target", long_text(), nullable=False),
        sa.Column("options", long_text(), nullable=False),
        sa.Column("shape", long_text(), nullable=False),
        sa.Column("start", exact(64), nullable=False),
        sa.Column("state", exact(16), nullable=False),
        sa.Column("reason", long_text(), nullable=False),
        sa.Column("action", long_text(), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("owner", exact(200)),
        sa.Column("lease_until", sa.BigInteger),
        sa.Column("retry_at", sa.BigInteger),
        sa.Column("written", sa.BigInteger),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("left_out", long_text()),
        sa.Column("topics", long_text()),
        sa.UniqueConstraint("cluster", "keyspace_name", "table_name", "name", "ended", name="subscribe_name"),
        sqlite_autoincrement=True,
    )


def _of_subscriptions() -> None:
    create_table(
        "progress",
        sa.Column("subscription", sa.Integer, sa.ForeignKey("subscribe.id"), primary_key=True, autoincrement=False),
        sa.Column("topic", exact(249), primary_key=True),
        sa.Column("kafka_partition", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("next_offset", sa.BigInteger, nullable=False),
        sa.Column("end_offset", sa.BigInteger),
        sa.Column("changed", sa.BigInteger, nullable=False),
    )
    create_table(
        "snapshot_progress",
        sa.Column("subscription", sa.Integer, sa.ForeignKey("subscribe.id"), primary_key=True, autoincrement=False),
        sa.Column("ranges", long_text(), nullable=False),
        sa.Column("changed", sa.BigInteger, nullable=False),
    )
    create_table(
        "delivery",
        sa.Column("subscription", sa.Integer, sa.ForeignKey("subscribe.id"), primary_key=True, autoincrement=False),
        sa.Column("written", sa.BigInteger),
        sa.Column("complete_to", sa.BigInteger),
        sa.Column("letters", sa.BigInteger, nullable=False),
        sa.Column("letters_since", sa.BigInteger),
    )


def _of_servers() -> None:
    create_table(
        "worker",
        sa.Column("owner", exact(200), primary_key=True),
        sa.Column("cluster", exact(100), nullable=False),
        sa.Column("running", sa.Integer, nullable=False),
        sa.Column("room", sa.Integer, nullable=False),
        sa.Column("started", sa.BigInteger, nullable=False),
        sa.Column("seen_until", sa.BigInteger, nullable=False),
    )
    create_table(
        "session",
        sa.Column("digest", exact(64), primary_key=True),
        sa.Column("until", sa.BigInteger, nullable=False),
        sa.Column("holder", long_text(), nullable=False),
    )
    create_table(
        "api_key",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", exact(64), nullable=False, unique=True),
        sa.Column("role", exact(16), nullable=False),
        sa.Column("digest", exact(64), nullable=False, unique=True),
        sa.Column("created", sa.BigInteger, nullable=False),
    )
    create_table(
        "audit",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("changed", sa.BigInteger, nullable=False),
        sa.Column("who", exact(200), nullable=False),
        sa.Column("operation", exact(32), nullable=False),
        sa.Column("subject", exact(400), nullable=False),
        sa.Column("before_json", long_text()),
        sa.Column("after_json", long_text()),
    )
