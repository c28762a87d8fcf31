"""A node's keyspace, followed by an agent and a stream, into SQLite unless a test has another sink."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from cassandra.cluster import Session

from tailrace.local import LocalCassandra, LocalKafka
from tests.integration.agents import AgentProcess, cql, create_keyspace, settings_for, start_here
from tests.integration.streams import StreamProcess
from tests.unit.spark.sinks.contract import Database


class Following:
    """What runs, and what is there. In statements and queries # is the keyspace."""

    def __init__(self, session: Session, keyspace: str, agent: AgentProcess, stream: StreamProcess, url: str) -> None:
        self.session = session
        self.keyspace = keyspace
        self.agent = agent
        self.stream = stream
        self.database = Database(url)

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.session.execute(statement.replace("#", self.keyspace), timeout=60)

    def rows(self, view: str, columns: str = "*") -> list[tuple[Any, ...]]:
        """What a view of the sink shows; nothing where there is none."""
        name = f"{self.keyspace}_{view}"
        return self.database.select(f"SELECT {columns} FROM {name}") if name in self.database.names() else []

    def until(self, view: str, rows: list[tuple[Any, ...]], columns: str = "*") -> None:
        """Wait until a view shows these rows."""
        self.stream.until(lambda: self.rows(view, columns) == rows)

    def names(self) -> set[str]:
        """The views and tables of the sink that follow this keyspace."""
        return {name for name in self.database.names() if name.startswith(self.keyspace)}


@contextmanager
def following(
    cassandra: LocalCassandra,
    kafka: LocalKafka,
    prefix: str,
    keyspace: str,
    directory: Path,
    *,
    before: Iterable[str] = (),
    stream: Mapping[str, object] | None = None,
    sink: str | Mapping[str, object] | None = None,
) -> Iterator[Following]:
    """An agent that publishes a new keyspace, and a stream of it; `before` is executed before both.

    `sink` is a database's URL, or a section.
    """
    url = sink if isinstance(sink, str) else f"sqlite:///{directory}/sink.db"
    with ExitStack() as stack:
        session = stack.enter_context(cql(cassandra))
        create_keyspace(session, keyspace)
        for statement in before:
            session.execute(statement.replace("#", keyspace), timeout=60)
        start_here(session, cassandra, kafka, prefix, keyspace)
        settings = settings_for(cassandra, kafka, prefix, keyspace)
        agent = AgentProcess(directory, settings)
        stack.enter_context(agent).until_covered()
        sections = {"cluster": settings["cluster"]}
        process = StreamProcess(directory, kafka, prefix, sink or url, stream=stream, sections=sections)
        stack.enter_context(process)
        followed = Following(session, keyspace, agent, process, url)
        stack.callback(followed.database.close)
        yield followed
