"""Who may write under a name, and who beside it: `tailrace_fences` has tokens, `tailrace_partitions` each partition.

A writer may be stopped for any time between reading rows and writing them, and a successor writes meanwhile. So a claim
counts the token up, in a transaction of its own, before its owner reads anything. A transaction that writes looks at
the token as its last statement, and holds that row until it has committed. All of it is READ COMMITTED, and there are
three orders:

- The claim commits, then comes the look: it finds a newer token, and nothing of the transaction stays.
- The look comes, then the claim: that waits for the commit, so that its owner reads what was committed.
- The look comes while the claim is about to commit: it waits, and finds whichever token stays.

So a writer that was stopped holds nobody up by its token but between the look and the commit. It may hold rows that it
has written, and whoever needs them waits for as long as a lock may take. The server ends its session when it has been
idle in a transaction for engine.IDLE_SECONDS. PostgreSQL does not end one within a COPY as long as its machine answers.

A task holds its partition's row from its first statement on. So of two attempts at a Kafka partition the second waits.
MySQL commits before each DDL: there the look comes before these too. A transaction of SQLite has the file to itself.

Streams and their tasks share a source table: their keys are their own. Who writes without a name, as a replay or a
repair does, has other writers' keys too. Merging reads rows, and writes them merged, so of two that read the same row
the second would undo what the first has written. So it waits until nobody writes the table, and keeps all others
waiting until it commits. It also counts up the table's token, under the table's id. By that the others find that what
they know is old: the table's truncations and purges, and whether any partition has deletions.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import sqlalchemy as sa

from tailrace_common.sections.template import fit
from tailrace_schemas.errors import FencedError, ServiceError
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import MicroBatch
from tailrace_spark.sinks.state_store.bulk import upsert
from tailrace_spark.sinks.state_store.tables import CATALOG, MYSQL, MYSQL_TABLE, POSTGRESQL, TOPIC

_LONGEST_NAME: Final = 36
_DEFINITION: Final = re.compile(r"\s*(ALTER|CREATE(?!\s+TEMPORARY)|DROP|GRANT|RENAME|REVOKE|TRUNCATE)\b", re.IGNORECASE)
_ID: Final = sa.Text().with_variant(sa.String(_LONGEST_NAME), MYSQL)
FENCES: Final = sa.Table(
    "tailrace_fences",
    CATALOG,
    sa.Column("stream", _ID, primary_key=True),
    sa.Column("token", sa.BigInteger, nullable=False),
    **MYSQL_TABLE,
)
PARTITIONS: Final = sa.Table(
    "tailrace_partitions",
    CATALOG,
    sa.Column("stream", _ID, primary_key=True),
    sa.Column("topic", TOPIC, primary_key=True),
    sa.Column("partition", sa.Integer, primary_key=True),
    sa.Column("batch", sa.BigInteger, nullable=False),
    sa.Column("next_offset", sa.BigInteger, nullable=False),
    **MYSQL_TABLE,
)
_TURNS: Final = FENCES.alias("turns")
_SIGN: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Fence:
    """Under which name a process writes, and the token of its claim."""

    name: str
    token: int

    def require(self, connection: sa.Connection) -> None:
        """Keep later claims waiting until the transaction ends.

        Raises FencedError where there is one, and ServiceError where the database has lost this one.
        """
        query = sa.select(FENCES.c.token).where(FENCES.c.stream == self.name).with_for_update(read=True)
        stored = connection.execute(query).scalar_one_or_none()
        if stored == self.token:
            return
        if stored is None or stored < self.token:
            raise ServiceError(f"the database was emptied, or restored from a backup, while {self.name} wrote")
        raise _fenced(self.name)


class Claim:
    """The right of one process to write in one database: the newest token under its name.

    It is taken when it is next needed: at first, for each plan of tasks, and after each failure. Without a name a
    process writes beside others, as a replay does.
    """

    def __init__(self, engine: sa.Engine, name: str | None = None) -> None:
        """`engine` is the one whose transactions are to be fenced."""
        self._given = self._name = None if name is None else fit(name, _LONGEST_NAME)
        self._tried: int | None = None
        self._fence: Fence | None = None
        if engine.dialect.name == MYSQL:
            sa.event.listen(engine, "before_cursor_execute", self._before_definition)

    def under(self, name: str) -> None:
        """Write under this name from now on, whatever `renew` says."""
        self._given = fit(name, _LONGEST_NAME)
        self._write_under(self._given)

    def renew(self, stream: str) -> None:
        """Take a newer token when it is next needed, under `stream` where no other name was given."""
        self._fence = None
        self._write_under(self._given or fit(stream, _LONGEST_NAME))

    def _write_under(self, name: str) -> None:
        if name != self._name:
            self._name, self._tried, self._fence = name, None, None

    def drop(self) -> None:
        """A transaction has failed: take a token again, so that a database that was emptied has one."""
        self._fence = None

    @property
    def named(self) -> bool:
        """Whether the process writes under a name; else it writes beside others."""
        return self._name is not None

    @property
    def due(self) -> bool:
        """Whether `take` has to come first."""
        return self._name is not None and self._fence is None

    @property
    def fence(self) -> Fence:
        """What was taken last."""
        if self._fence is None:
            raise ValueError("a claim that was not taken")
        return self._fence

    def take(self, transaction: AbstractContextManager[sa.Connection]) -> None:
        """Take the newest token, in this transaction and nothing else in it.

        Raises FencedError where another process has taken one since this one's last.
        """
        with transaction as connection:
            token = self._counted_up(connection, str(self._name))
        self._fence = Fence(str(self._name), token)  # not before: where the commit fails, another one may have it

    def require(self, connection: sa.Connection) -> None:
        """As Fence.require, of what was taken; a process without a name is let through."""
        if self._fence is not None:
            self._fence.require(connection)

    def _counted_up(self, connection: sa.Connection, name: str) -> int:
        token = _count_up(connection, name)
        # What was tried last may have been undone with its transaction, or not.
        if self._tried is not None and token - 1 > self._tried:
            raise _fenced(name)
        self._tried = token
        return token

    def _before_definition(self, connection: sa.Connection, _cursor: object, statement: str, *_: object) -> None:
        if _DEFINITION.match(statement):
            self.require(connection)


class TableTurns:
    """Takes turns at source tables, in the caller's transactions, and knows which token it has last seen of each."""

    def __init__(self) -> None:
        self._tokens: dict[UUID, int] = {}
        self.alone = False
        """Whether this process writes beside others, without a name."""

    def take(self, connection: sa.Connection, table_id: UUID) -> bool:
        """Wait for the table, until the transaction ends; whether somebody else has had it alone since the last time.

        Call it before anything is read of the table, and again behind DDL, around which MySQL commits.
        """
        # PostgreSQL's own locks keep their order: who shares a row's lock passes whoever waits for it alone.
        if connection.dialect.name == POSTGRESQL:
            lock = sa.func.pg_advisory_xact_lock if self.alone else sa.func.pg_advisory_xact_lock_shared
            connection.execute(sa.select(lock(_lock_of(table_id))))
        token = _count_up(connection, str(table_id)) if self.alone else _token(connection, table_id)
        expected = self._tokens.get(table_id, 0) + self.alone
        self._tokens[table_id] = token
        return token != expected


def _token(connection: sa.Connection, table_id: UUID) -> int:
    query = sa.select(_TURNS.c.token).where(_TURNS.c.stream == str(table_id))
    if connection.dialect.name != MYSQL:
        return connection.execute(query).scalar_one_or_none() or 0
    shared = query.with_for_update(read=True)
    token: int | None = connection.execute(shared).scalar_one_or_none()
    if token is None:  # no lock holds a row that is absent
        row = {"stream": str(table_id), "token": 0}
        upsert(connection, FENCES, row, {"token": FENCES.c.token})
        token = connection.execute(shared).scalar_one()
    return token


def _lock_of(table_id: UUID) -> int:
    """A number that PostgreSQL's locks take, signed and of 64 bits."""
    return (table_id.int & 2 * _SIGN - 1) - _SIGN


def _count_up(connection: sa.Connection, name: str) -> int:
    """The next token of a name, whose row is held until the transaction ends."""
    # Written before it is read: no lock holds a row that is absent, so two first claims would have the same token.
    newer = {"token": FENCES.c.token + 1}
    upsert(connection, FENCES, {"stream": name, "token": 1}, newer)
    token: int = connection.execute(sa.select(FENCES.c.token).where(FENCES.c.stream == name)).scalar_one()
    return token


def begin_partition(connection: sa.Connection, batch: MicroBatch, partition: KafkaPartition) -> None:
    """Keep every other attempt at the partition waiting until the transaction ends."""
    reached = {"batch": batch.number, "next_offset": batch.ends[partition]}
    row = {"stream": batch.stream, "topic": partition[0], "partition": partition[1], **reached}
    upsert(connection, PARTITIONS, row, reached)


def _fenced(name: str) -> FencedError:
    return FencedError(
        f"another process writes {name} into this database now, and this one writes no more: a stream with a "
        "checkpoint runs once at a time"
    )
