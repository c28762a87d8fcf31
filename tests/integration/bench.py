"""One test's keyspace and prefix on a node and a Kafka, and its agents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from cassandra.cluster import Session
from cassandra.concurrent import execute_concurrent_with_args

from tailrace.local import LocalCassandra, LocalKafka
from tests.integration import agents
from tests.integration.agents import AgentProcess, Published, create_keyspace, ints, published, settings_for, start_here

Sections = Mapping[str, Mapping[str, object]]


class Bench:
    """What a test writes and reads. `sections` are laid over the settings of its agents."""

    def __init__(
        self, session: Session, cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace: str, place: Path
    ) -> None:
        self.session = session
        self.cassandra = cassandra
        self.kafka = kafka
        self.config: dict[str, bool | int | float | str] = {"bootstrap.servers": kafka.bootstrap}
        self.prefix = prefix
        self.keyspace = keyspace
        self.place = place
        self.sections: Sections = {}

    @classmethod
    @contextmanager
    def begun(
        cls, cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace: str, place: Path
    ) -> Iterator[Self]:
        """With a new keyspace; the prefix's agent begins at this instant."""
        with agents.cql(cassandra) as session:
            create_keyspace(session, keyspace)
            start_here(session, cassandra, kafka, prefix, keyspace)
            yield cls(session, cassandra, kafka, prefix, keyspace, place)

    def agent(self, name: str = "agent", sections: Sections | None = None) -> AgentProcess:
        """An agent, not started."""
        settings = settings_for(self.cassandra, self.kafka, self.prefix, self.keyspace)
        for own in (self.sections, sections or {}):
            for section, values in own.items():
                settings[section] = {**settings.get(section, {}), **values}
        return AgentProcess(self.place, settings, name)

    def run(self, *statements: str) -> None:
        """Execute statements in which # is the keyspace; DDL returns when the schema is agreed on."""
        for statement in statements:
            self.session.execute(statement.replace("#", self.keyspace), timeout=agents.BUSY_SECONDS)

    def create(self, table: str = "t") -> None:
        """A table of k int, v text."""
        self.run(f"CREATE TABLE #.{table} (k int PRIMARY KEY, v text) WITH cdc = true")

    def write(self, keys: range, table: str = "t", text: str = "v") -> None:
        """One row for each key, many at once."""
        insert = self.session.prepare(f"INSERT INTO {self.keyspace}.{table} (k, v) VALUES (?, ?)")
        execute_concurrent_with_args(self.session, insert, [(key, text) for key in keys], concurrency=32)

    def roll_over(self) -> int:
        """Let the log begin a new segment; the number of the one before."""
        return agents.roll_over(self.session, self.cassandra, self.keyspace)

    def hide_commitlog(self) -> None:
        """Give agents no commit log: else they would read there what `hide_unindexed` takes from cdc_raw."""
        self.sections = {"agent": {"commitlog_directory": str(self.place / "not at hand")}}

    def hide_unindexed(self, last: int) -> None:
        """Take the segments up to this one out of cdc_raw that hold no cdc data, as Cassandra does by and by."""
        for path in self.cassandra.cdc_raw.glob("*.log"):
            if int(path.stem.rpartition("-")[2]) <= last and not path.with_name(f"{path.stem}_cdc.idx").exists():
                path.unlink(missing_ok=True)

    def topic(self, table: str = "t") -> str:
        """The topic of a table's changes."""
        return f"{self.prefix}.{self.keyspace}.{table}"

    def records(self, table: str = "t") -> list[Published]:
        """What is in the table's topic, partition by partition."""
        return published(self.kafka, self.prefix, self.topic(table))

    def logged(self, table: str = "t") -> list[Published]:
        """The same in the order of the log."""
        return sorted(self.records(table), key=place_of)

    def key_counts(self, table: str = "t") -> Counter[int]:
        """How often each key was published."""
        return ints(self.records(table))


def place_of(record: Published) -> tuple[int, int, int, int]:
    """Segment, offset, index in the mutation, and the partition: a truncation is in each."""
    source = record.change.source
    assert source is not None
    return source.position.segment, source.position.offset, source.index, record.partition
