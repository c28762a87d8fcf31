"""A table that is there before its log: a node, an agent, and streams that read snapshots and follow."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from cassandra.cluster import Session
from cassandra.concurrent import execute_concurrent_with_args

from tailrace.cluster import LiveCluster
from tailrace.local import LocalCassandra, LocalKafka
from tailrace_common.settings import Settings
from tailrace_schemas.table import Table
from tailrace_spark.job.stream import Stream
from tailrace_spark.sinks.protocol import Sink
from tailrace_spark.snapshot.progress import Snapshots, State, TableSnapshot
from tests.integration import streams
from tests.integration.agents import AgentProcess, contact_of_node, cql, create_keyspace, settings_for, start_here
from tests.integration.processes import PROGRAM
from tests.oracle.comparison import Difference, Followed, Row, ask, differences
from tests.support.background import Background
from tests.support.waiting import text_of, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = 40
ROWS = 10


@dataclass
class Place:
    """A keyspace of a node whose agent publishes under a prefix, and where streams keep their checkpoints."""

    session: Session
    node: LocalCassandra
    kafka: LocalKafka
    live: LiveCluster
    prefix: str
    keyspace: str
    spark: SparkSession | None
    directory: Path

    def run(self, statement: str) -> list[Any]:
        return list(self.session.execute(statement.replace("KS.", f"{self.keyspace}.")))

    def create(self, name: str = "orders") -> None:
        """A table without cdc, with rows of every kind, and then cdc."""
        self.run(
            f"CREATE TABLE KS.{name} (k int, c int, s text STATIC, v text, w int, tags set<text>, "
            "places map<text, int>, l list<int>, PRIMARY KEY (k, c))"
        )
        insert = self.session.prepare(
            f"INSERT INTO {self.keyspace}.{name} (k, c, v, w, tags, places, l) VALUES (?, ?, ?, ?, ?, ?, ?)"
        )
        rows = [(k, c, f"v{k}", c, {"a", str(k)}, {"x": k}, [k, c]) for k in range(KEYS) for c in range(ROWS)]
        execute_concurrent_with_args(self.session, insert, rows, concurrency=32)
        for key in range(0, KEYS, 3):
            self.run(f"UPDATE KS.{name} SET s = 's{key}' WHERE k = {key}")
            self.run(f"DELETE FROM KS.{name} WHERE k = {key} AND c = 1")
            self.run(f"DELETE v FROM KS.{name} WHERE k = {key} AND c = 2")
        self.run(f"DELETE FROM KS.{name} WHERE k = 5")
        self.run(f"INSERT INTO KS.{name} (k, c) VALUES (1000, 1)")
        self.run(f"ALTER TABLE KS.{name} WITH cdc = true")

    def settings(
        self,
        table: str,
        snapshot: str | None = "initial",
        *,
        limits: Mapping[str, object] | None = None,
        **stream: object,
    ) -> Settings:
        """Those of a stream of one table, with a checkpoint of its own. With None they say nothing of snapshots."""
        return Settings.model_validate(self.sections(table, snapshot, limits=limits, **stream))

    def sections(
        self,
        table: str,
        snapshot: str | None = "initial",
        *,
        limits: Mapping[str, object] | None = None,
        **stream: object,
    ) -> dict[str, Mapping[str, object]]:
        """As a file has them."""
        return {
            **settings_for(self.node, self.kafka, self.prefix, self.keyspace),
            "stream": {
                "checkpoint": str(self.directory / f"checkpoint-{table}"),
                "topics": rf"{self.prefix}\.{self.keyspace}\.{table}",
                **({} if snapshot is None else {"snapshot": snapshot}),
                "trigger_seconds": 0,
                **stream,
            },
            "snapshot": {"consistency": "ONE", "ranges": 8, "page_rows": 50, **(limits or {})},
        }

    def stream(self, sink: Sink, settings: Settings, stop: threading.Event | None = None) -> Stream:
        assert self.spark is not None, "this place is for streams that are processes of their own"
        return Stream(self.spark, settings, sink, stop=stop)

    def table(self, name: str) -> Table:
        """Its definition now."""
        [table] = [one for one in self.live.definitions().tables if (one.keyspace, one.name) == (self.keyspace, name)]
        return table

    def until_equal(
        self, store: Followed, name: str, seconds: float = 120, *, keeps: Callable[[Row], bool] = lambda _: True
    ) -> None:
        """Wait until the store shows what SELECT answers of a table, of the rows that a filter keeps."""
        tables = [self.table(name)]

        def remaining() -> list[Difference]:
            answers = ask(self.session, tables)
            kept = [replace(answer, rows=tuple(filter(keeps, answer.rows))) for answer in answers]
            return differences(kept, store)

        until(lambda: remaining() == [], "equal tables", seconds, state=lambda: [*map(str, remaining())][:5])


@contextmanager
def placed(
    cassandra: LocalCassandra,
    kafka: LocalKafka,
    directory: Path,
    spark: SparkSession | None = None,
    *,
    program: tuple[str, ...] = PROGRAM,
) -> Iterator[Place]:
    """A keyspace of its own whose agent runs inside the `with`. `spark` is for streams of this process, `program` is
    what Python is told to run as the agent's `tailrace`."""
    prefix, keyspace = f"t{uuid4().hex[:12]}", f"ks_{uuid4().hex[:12]}"
    contact = contact_of_node(cassandra)
    with closing(LiveCluster(contact)) as live, cql(cassandra) as session:
        create_keyspace(session, keyspace)
        start_here(session, cassandra, kafka, prefix, keyspace)
        settings = settings_for(cassandra, kafka, prefix, keyspace)
        settings["tables"]["include"] = [f"{keyspace}*.*"]  # random programs have keyspaces of their own
        with AgentProcess(directory, settings, program=program) as agent:
            agent.until_ready(180).until_covered(180)
            yield Place(session, cassandra, kafka, live, prefix, keyspace, spark, directory)
        session.execute(f"DROP KEYSPACE {keyspace}")


class Writes(Background):
    """Writes into tables, one statement after the other."""

    def __init__(self, place: Place, *names: str, seed: int = 1, pause: float = 0.01) -> None:
        super().__init__(self._write, pause)
        self._place, self._names, self._random = place, names, Random(seed)
        self.count = 0

    def _write(self) -> None:
        self._place.run(self._statement())
        self.count += 1

    def _statement(self) -> str:
        random = self._random
        name, k, c = random.choice(self._names), random.randrange(KEYS + 5), random.randrange(ROWS + 2)
        row, half = f"WHERE k = {k} AND c = {c}", random.randrange(KEYS // 2, KEYS)  # the others keep most rows
        match random.randrange(9):
            case 0:
                return f"DELETE FROM KS.{name} {row}"
            case 1:
                return f"DELETE FROM KS.{name} WHERE k = {half}"
            case 2:
                return f"UPDATE KS.{name} SET tags = tags + {{'{c}'}}, places['y'] = {c} {row}"
            case 3:
                return f"UPDATE KS.{name} SET s = '{random.random()}' WHERE k = {k}"
            case 4:
                return f"UPDATE KS.{name} SET l = l + [{c}], w = null {row}"
            case 5:
                return f"DELETE FROM KS.{name} WHERE k = {half} AND c >= {c}"
            case _:
                return f"INSERT INTO KS.{name} (k, c, v, w) VALUES ({k}, {c}, '{random.random()}', {k})"


class Running(streams.Running):
    """A stream that tells of its snapshots."""

    @property
    def snapshots(self) -> Snapshots:
        return self.stream.snapshots

    def state(self) -> object:
        return super().state() or self.snapshots

    def until_met(self, met: Callable[[Snapshots], bool], seconds: float = 120) -> Snapshots:
        """Wait for the progress of its snapshots."""
        self.until(lambda: met(self.snapshots), seconds, text_of(met))
        return self.snapshots

    def until_done(self, count: int) -> list[TableSnapshot]:
        """Wait until so many snapshots have ended, and give them."""
        return list(self.until_met(lambda value: sum(one.state.ended for one in value.tables) >= count).tables)


def running(place: Place, sink: Sink, settings: Settings) -> Running:
    """A stream that runs inside the `with`."""
    stop = threading.Event()
    return Running(place.stream(sink, settings, stop), stop)


def done(snapshots: Snapshots) -> bool:
    """Whether there are some, and all are done."""
    return bool(snapshots.tables) and all(one.state is State.DONE for one in snapshots.tables)
