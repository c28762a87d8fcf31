"""The tables of the meta database. A new one gets them as they are here; for others a change needs a migration."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

metadata: Final = sa.MetaData()


def exact(length: int) -> sa.types.TypeEngine[str]:
    """Text whose letters count, in MySQL too, which by default holds `Orders` and `orders` for equal."""
    text = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(text, "mysql", "mariadb")


def long_text() -> sa.types.TypeEngine[str]:
    """Text of any length: MySQL's TEXT ends at 64 KiB."""
    return sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")


subscribe: Final = sa.Table(
    "subscribe",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("cluster", exact(100), nullable=False),
    sa.Column("keyspace_name", exact(100), nullable=False),
    sa.Column("table_name", exact(222), nullable=False),
    sa.Column("name", exact(64), nullable=False),
    # 0, or the own id once it is cancelled: then its name is free.
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
    # When its lease ends; of one that nobody has, when that was.
    sa.Column("lease_until", sa.BigInteger),
    # Nobody claims it before, as it has failed; NULL: at once.
    sa.Column("retry_at", sa.BigInteger),
    sa.Column("written", sa.BigInteger),
    sa.Column("created", sa.BigInteger, nullable=False),
    # Tables that its worker goes without, as a JSON object of reasons by table; NULL: none.
    sa.Column("left_out", long_text()),
    # The ids and readings of its topics, as JSON; NULL: nothing is known of them.
    sa.Column("topics", long_text()),
    sa.UniqueConstraint("cluster", "keyspace_name", "table_name", "name", "ended", name="subscribe_name"),
    sqlite_autoincrement=True,  # an id that comes again would be another's name in sinks
)

progress: Final = sa.Table(
    "progress",
    metadata,
    sa.Column("subscription", sa.Integer, sa.ForeignKey("subscribe.id"), primary_key=True, autoincrement=False),
    sa.Column("topic", exact(249), primary_key=True),
    sa.Column("kafka_partition", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("next_offset", sa.BigInteger, nullable=False),
    sa.Column("end_offset", sa.BigInteger),
    sa.Column("changed", sa.BigInteger, nullable=False),
)

# A row for a subscription that reads its tables: how far it is, by token ranges, as JSON
# (tailrace_spark.snapshot.progress). Ranges are merged as they are done, so it stays small.
snapshot_progress: Final = sa.Table(
    "snapshot_progress",
    metadata,
    sa.Column("subscription", sa.Integer, sa.ForeignKey("subscribe.id"), primary_key=True, autoincrement=False),
    sa.Column("ranges", long_text(), nullable=False),
    sa.Column("changed", sa.BigInteger, nullable=False),
)

# What a sink has beyond offsets (tailrace_server.model.delivery). Letters are counted with the offsets behind them.
delivery: Final = sa.Table(
    "delivery",
    metadata,
    sa.Column("subscription", sa.Integer, sa.ForeignKey("subscribe.id"), primary_key=True, autoincrement=False),
    sa.Column("written", sa.BigInteger),
    sa.Column("complete_to", sa.BigInteger),
    sa.Column("letters", sa.BigInteger, nullable=False),
    sa.Column("letters_since", sa.BigInteger),
)

worker: Final = sa.Table(
    "worker",
    metadata,
    sa.Column("owner", exact(200), primary_key=True),
    sa.Column("cluster", exact(100), nullable=False),
    sa.Column("running", sa.Integer, nullable=False),
    sa.Column("room", sa.Integer, nullable=False),
    sa.Column("started", sa.BigInteger, nullable=False),
    sa.Column("seen_until", sa.BigInteger, nullable=False),
)

# Of browsers: who has signed in, as JSON, until when in seconds since 1970.
session: Final = sa.Table(
    "session",
    metadata,
    sa.Column("digest", exact(64), primary_key=True),
    sa.Column("until", sa.BigInteger, nullable=False),
    sa.Column("holder", long_text(), nullable=False),
)

api_key: Final = sa.Table(
    "api_key",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", exact(64), nullable=False, unique=True),
    sa.Column("role", exact(16), nullable=False),
    sa.Column("digest", exact(64), nullable=False, unique=True),
    sa.Column("created", sa.BigInteger, nullable=False),
)

audit: Final = sa.Table(
    "audit",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("changed", sa.BigInteger, nullable=False),
    sa.Column("who", exact(200), nullable=False),
    sa.Column("operation", exact(32), nullable=False),
    sa.Column("subject", exact(400), nullable=False),
    sa.Column("before_json", long_text()),
    sa.Column("after_json", long_text()),
)
