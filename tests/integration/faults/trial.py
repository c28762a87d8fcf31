"""One test's keyspace, prefix, agents and load, and at its end the judgement over what was published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, Self
from uuid import UUID

from cassandra.cluster import Session
from confluent_kafka.admin import AdminClient

from tailrace.cluster import LiveCluster
from tailrace.commitlog.descriptor import parse_name
from tailrace.local import LocalCassandra, LocalKafka
from tailrace_schemas.table import Table
from tests.integration import dying_agent
from tests.integration.agents import (
    AgentProcess,
    Published,
    appended,
    contact_of_node,
    create_keyspace,
    published,
    settings_for,
    start_here,
)
from tests.integration.dying_agent import Step
from tests.integration.faults.load import TABLES, UNANSWERED, Load, connect_again
from tests.integration.faults.oracle import Links, Script, Verdict, compare, facts_in, logged
from tests.support.waiting import until

Settings = dict[str, dict[str, object]]

MARKS: Final = "CREATE TABLE #.marks (k int PRIMARY KEY) WITH cdc = true"


class Trial:
    """A keyspace with the load's tables, and a prefix whose agents begin at this instant.

    The test makes the schema, so it knows it: `ddl` says from where on which definitions hold.
    """

    def __init__(
        self, session: Session, cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace: str, place: Path
    ) -> None:
        self.session = session
        self.cassandra = cassandra
        self.kafka = kafka
        self.prefix = prefix
        self.keyspace = keyspace
        self.place = place
        self.links = Links(cassandra.commitlog, place / "links")
        self._mark = 0
        self._known: dict[UUID, Table] = {}
        self._eras: dict[int, Mapping[UUID, Table]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for statement in (*TABLES, MARKS):
            self.run(statement)
        self._eras[0] = self._definitions()
        self._stack.enter_context(self.links)
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    # -- parts

    @property
    def settings(self) -> Settings:
        """An agent's settings, to be changed at will."""
        return settings_for(self.cassandra, self.kafka, self.prefix, self.keyspace)

    def agent(
        self, name: str = "agent", settings: Settings | None = None, program: tuple[str, ...] | None = None
    ) -> AgentProcess:
        """An agent, not started."""
        make = partial(AgentProcess, self.place, settings or self.settings, name)
        return make() if program is None else make(program=program)

    def dying(self, step: Step, nth: int = 1) -> AgentProcess:
        """An agent that kills itself when it is at a step for the nth time, not started."""
        return self.agent("dying", program=(dying_agent.__file__, step, str(nth)))

    def load(self, *, seed: int = 1, rate: float = 300, bulk: int = 4000) -> Load:
        """A load on its tables, which the end of the trial ends too."""
        return self._stack.enter_context(Load(self.cassandra, self.keyspace, seed=seed, rate=rate, bulk=bulk))

    # -- what the test does

    def run(self, statement: str) -> None:
        """Execute a statement in which # is the keyspace."""
        self.session.execute(statement.replace("#", self.keyspace))

    def is_answered(self) -> bool:
        """Whether Cassandra answers."""
        try:
            self.session.execute("SELECT key FROM system.local")
        except UNANSWERED:
            return False
        return True

    def ddl(self, *statements: str, writes: tuple[str, ...] = ()) -> None:
        """Alter the schema, write at once, and note from where in the log which definitions hold.

        Nothing else may be writing to the tables: a load is paused around it.
        """
        for statement in statements:
            self.run(statement)
        mark = self.mark()
        for write in writes:
            self.run(write)
        self._eras[mark] = self._definitions()

    def unused_name(self) -> str:
        """A name for a column that no table has."""
        return f"more{self._mark}"

    def mark(self) -> int:
        """Write the next row of `marks`; its number."""
        self._mark += 1
        self.run(f"INSERT INTO #.marks (k) VALUES ({self._mark})")
        return self._mark

    def until_segments(self, count: int, seconds: float = 60) -> None:
        """Wait until the log has begun so many more segments."""
        there = len(self.links.paths())
        until(lambda: len(self.links.paths()) >= there + count, f"{count} more segments", seconds)

    # -- what came of it

    def records(self, table: str) -> list[Published]:
        """What is in a table's topic."""
        return published(self.kafka, self.prefix, f"{self.prefix}.{self.keyspace}.{table}")

    def is_published(self, mark: int) -> bool:
        """Whether a row of `marks` is."""
        keys = (int.from_bytes(one.change.key or b"", "big") for one in self.records("marks"))
        return mark in keys

    def appended(self) -> int:
        """How many records and marks of transactions its topics have, committed or not."""
        return sum(appended(self.kafka, topic) for topic in self._topics())

    def _topics(self) -> list[str]:
        topics = AdminClient({"bootstrap.servers": self.kafka.bootstrap}).list_topics(timeout=60).topics
        return sorted(name for name in topics if name.startswith(f"{self.prefix}.{self.keyspace}."))

    def verdict(self, last: int | None = None) -> Verdict:
        """Everything in Kafka against everything in the log, up to a mark behind which nothing was written; without
        one, the newest."""
        last = self._mark if last is None else last
        (marks,) = {table.id for era in self._eras.values() for table in era.values() if table.name == "marks"}
        found = [record for name in self._topics() for record in published(self.kafka, self.prefix, name)]
        expected = logged(self.links.paths(), Script(marks=marks, eras=self._eras), last)
        return compare(expected, facts_in(found))

    def settle(self, agent: AgentProcess, seconds: float = 120) -> Verdict:
        """As `finish`, and judge."""
        last = self.finish(agent, seconds)
        verdict = self.verdict(last)
        assert verdict.sound, f"{verdict}\n{agent.words()}"
        return verdict

    def finish(self, agent: AgentProcess, seconds: float = 120) -> int:
        """Write the last row, wait until it is published, and stop the agent in order; its number.

        The load is over by now.
        """
        last = self.mark()
        agent.until(lambda: self.is_published(last), seconds)
        assert agent.stop() == 0, agent.words()
        return last

    def _definitions(self) -> Mapping[UUID, Table]:
        """All that were ever known, as they are now; `instant` is start_here's."""
        contact = contact_of_node(self.cassandra)
        with closing(LiveCluster(contact)) as cluster:
            tables = cluster.definitions().tables
        own = {table.id: table for table in tables if table.keyspace == self.keyspace and table.name != "instant"}
        self._known |= own
        return dict(self._known)


@contextmanager
def trial_on(cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace: str, place: Path) -> Iterator[Trial]:
    """A trial on these services."""
    with connect_again(cassandra) as cluster, cluster.connect() as session:
        create_keyspace(session, keyspace)
        start_here(session, cassandra, kafka, prefix, keyspace)
        with Trial(session, cassandra, kafka, prefix, keyspace, place) as trial:
            yield trial


def until_more(agent: AgentProcess, changes: int = 300, seconds: float = 120) -> None:
    """Wait until so many more changes are committed."""
    there = agent.count("changes")
    agent.until(lambda: agent.count("changes") >= there + changes, seconds)


def number(path: Path) -> int:
    parsed = parse_name(path.name)
    assert parsed is not None
    return parsed[1]


def finished(trial: Trial) -> list[Path]:
    """The segments of cdc_raw that Cassandra writes no more, by id."""
    indexes = [path for path in trial.cassandra.cdc_raw.glob("*_cdc.idx") if b"COMPLETED" in path.read_bytes()]
    return sorted((path.with_name(path.name.replace("_cdc.idx", ".log")) for path in indexes), key=number)
