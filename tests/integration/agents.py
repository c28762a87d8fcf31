"""`tailrace agent` as a process of its own, and what a read_committed reader then finds in Kafka."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, Self

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.policies import WhiteListRoundRobinPolicy
from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # its __all__ forgets it

from tailrace.capture.cdcraw import CdcRaw
from tailrace.capture.owner import read_owner
from tailrace.cluster import LiveCluster
from tailrace.commitlog.mutation import first_table
from tailrace.local import LocalCassandra, LocalKafka
from tailrace.local.ports import free_port
from tailrace.publish.kafka import KafkaPublisher, KafkaTopics
from tailrace.segments.files import OWNER_MARK
from tailrace.segments.open_segment import header_checksum
from tailrace.state import Resume, SegmentKey
from tailrace_common.kafka import TopicReader
from tailrace_common.locks import is_locked
from tailrace_common.sections.cassandra import CassandraSettings
from tailrace_common.settings import TopicSettings
from tailrace_common.topics import SchemaReader
from tailrace_schemas.avro import decode
from tailrace_schemas.change import Change
from tailrace_schemas.position import Position
from tailrace_schemas.topics import Internal
from tests.integration.processes import PROGRAM, CommandProcess, environment
from tests.support.waiting import until

BUSY_SECONDS: Final = 60.0
"""How long a client of a node waits for an answer: the node may share a busy machine."""


class AgentProcess(CommandProcess):
    """One `tailrace agent`, its settings file, log and health endpoint below `directory`. Killed at the exit.

    `program` is what Python is told to run as `tailrace`. Tests share nodes one after the other, each with a prefix of
    its own: a start removes the owner mark that an agent of another prefix left in cdc_raw, not for `disowns` False.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, Mapping[str, object]],
        name: str = "agent",
        program: tuple[str, ...] = PROGRAM,
        *,
        disowns: bool = True,
        options: tuple[str, ...] = (),
    ) -> None:
        super().__init__(directory / f"{name}.log")
        self._program = program
        self._options = options
        self._cdc_raw = Path(str(settings.get("agent", {}).get("cdc_raw_directory"))) if disowns else None
        self._prefix = settings.get("topics", {}).get("prefix")
        self.settings = directory / f"{name}.toml"
        self._port = free_port("127.0.0.1")
        agent = {**settings.get("agent", {}), "health_port": self._port}
        self.settings.write_text(_toml({**settings, "agent": agent}))

    def start(self) -> Self:
        """Start it, again after its end too."""
        if self._cdc_raw is not None and self._cdc_raw.is_dir() and not is_locked(self._cdc_raw):
            owner = read_owner(self._cdc_raw)
            if owner is not None and owner.prefix != self._prefix:
                (self._cdc_raw / OWNER_MARK).unlink()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    *self._program,
                    "--log-level",
                    "debug",
                    "agent",
                    "-c",
                    str(self.settings),
                    *self._options,
                ],
                stdout=log,
                stderr=log,
                env={k: value for k, value in environment(self._program).items() if not k.startswith("TAILRACE_")},
            )
        return self

    def status(self) -> dict[str, Any]:
        """What /status says; empty while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/status", timeout=5) as answer:
                status: dict[str, Any] = json.load(answer)
                return status
        except (OSError, urllib.error.URLError):
            return {}

    def faults(self) -> dict[str, str]:
        """What is degraded, but for Kafka's being slow: so is all that runs beside other work."""
        degraded = self.status().get("degraded", {"status": "the agent does not answer"})
        return {name: words for name, words in degraded.items() if name != "slow"}

    def _state(self) -> str:
        return f"{json.dumps(self.status())}\n{super()._state()}"

    def count(self, name: str) -> int:
        """One of the counts of /status, since this process started."""
        return int(self.status().get("counts", {}).get(name, 0))

    def until_ready(self, seconds: float = 60) -> Self:
        """Wait until it publishes."""
        self.until(lambda: bool(self.status().get("ready")), seconds)
        return self

    def until_covered(self, seconds: float = 60) -> Self:
        """Wait until its ring has a generation: an agent publishes changes before there is a first one."""
        self.until(lambda: (self.status().get("ring") or {}).get("state") == "covered", seconds)
        return self

    def command(self, *arguments: str, code: int = 0) -> str:
        """What another of tailrace's commands prints with the agent's settings; it ends with this exit code."""
        run = [sys.executable, *PROGRAM, *arguments, "-c", str(self.settings)]
        found = subprocess.run(run, capture_output=True, text=True, timeout=300, check=False)
        assert found.returncode == code, found.stderr
        return found.stdout

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait(60)


def settings_for(
    cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace: str | None = None
) -> dict[str, dict[str, object]]:
    """An agent's settings: this node, this Kafka, this prefix; only this keyspace's tables where one is named."""
    agent = {"cdc_raw_directory": str(cassandra.cdc_raw), "poll_seconds": 0.2}
    return {
        "cluster": {"contact_points": [cassandra.address], "port": cassandra.port},
        "agent": {**agent, "spool_directory": str(cassandra.directory / "spool")},
        "kafka": {"bootstrap.servers": kafka.bootstrap},
        "topics": {"prefix": prefix, "partitions": 3},
        # The node is other tests' too: their tables are no mistake, and their segments go.
        "tables": {"include": ["*.*" if keyspace is None else f"{keyspace}.*"], "release_unselected": True},
    }


@contextmanager
def cql(
    cassandra: LocalCassandra, consistency: int = ConsistencyLevel.LOCAL_ONE, seconds: float = BUSY_SECONDS
) -> Iterator[Session]:
    """A session of the driver with this node, which waits so long for an answer."""
    profile = ExecutionProfile(
        load_balancing_policy=WhiteListRoundRobinPolicy([cassandra.address]),
        consistency_level=consistency,
        request_timeout=seconds,
    )
    profiles = {EXEC_PROFILE_DEFAULT: profile}
    with (
        Cluster(
            [cassandra.address],
            port=cassandra.port,
            execution_profiles=profiles,
            protocol_version=5,
            connect_timeout=seconds,
            control_connection_timeout=seconds,
        ) as cluster,
        cluster.connect() as session,
    ):
        yield session


def contact_of_node(node: LocalCassandra) -> CassandraSettings:
    """A node's address and port, for connections that wait as long as a busy machine needs."""
    return CassandraSettings(
        contact_points=(node.address,),
        port=node.port,
        connect_timeout_seconds=BUSY_SECONDS,
        request_timeout_seconds=BUSY_SECONDS,
    )


def create_keyspace(session: Session, keyspace: str, replicas: int = 1) -> None:
    """A keyspace of so many replicas."""
    replication = f"{{'class': 'SimpleStrategy', 'replication_factor': {replicas}}}"
    session.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {replication}")


def start_here(session: Session, cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace: str) -> None:
    """Let the prefix's agent begin at this instant: other tests' mutations, of tables long dropped, are not its own.

    A row of a table of its own marks the instant in the log; the agent's offsets record says that all up to there is
    published, also what other tests' agents have released: a crash of the node brings it back.
    """
    session.execute(f"CREATE TABLE IF NOT EXISTS {keyspace}.instant (k int PRIMARY KEY) WITH cdc = true")
    session.execute(f"INSERT INTO {keyspace}.instant (k) VALUES (1)")
    with closing(LiveCluster(contact_of_node(cassandra))) as live:
        node = live.check()
        marker = next(t.id for t in live.definitions().tables if (t.keyspace, t.name) == (keyspace, "instant"))
    config: dict[str, bool | int | float | str] = {"bootstrap.servers": kafka.bootstrap}
    KafkaTopics(config, TopicSettings(prefix=prefix)).ensure_internal((Internal.OFFSETS,))
    publisher = KafkaPublisher(config, prefix=prefix, cluster=node.cluster, host=node.host, clock=_no_time, timeout=60)
    with closing(CdcRaw(cassandra.cdc_raw, Resume())) as capture, closing(publisher):
        position: Position | None = None

        def seen() -> bool:
            nonlocal position
            while entries := capture.read(1000):
                position = entries[-1].position
                if any(first_table(entry.payload, entry.version)[1] == marker for entry in entries):
                    return True
            return False

        until(seen, "the marker in the log")
        publisher.start()
        publisher.commit(Resume(position, tuple(sorted({*_logged(cassandra, position), *capture.open_segments()}))))


def _logged(cassandra: LocalCassandra, until: Position | None) -> set[SegmentKey]:
    """The segments that the commit log has up to there."""
    paths = {int(path.stem.rpartition("-")[2]): path for path in cassandra.commitlog.glob("*.log")}
    return {(id, header_checksum(path)) for id, path in paths.items() if until is not None and id <= until.segment}


def roll_over(session: Session, cassandra: LocalCassandra, keyspace: str) -> int:
    """Let the log begin a new segment, by writes to a table without cdc; the number of the one that was the newest."""
    session.execute(f"CREATE TABLE IF NOT EXISTS {keyspace}.filler (k int PRIMARY KEY, v blob)")
    insert = session.prepare(f"INSERT INTO {keyspace}.filler (k, v) VALUES (?, ?)")

    def newest() -> int:
        return max(int(path.stem.rpartition("-")[2]) for path in cassandra.commitlog.glob("*.log"))

    def rolled() -> bool:
        for key in range(10):
            session.execute(insert, (key, b"x" * 20_000))
        return newest() > before

    before = newest()  # it was allocated ahead: what is written goes to the one before it, until that is full
    until(rolled, "another segment")
    return before - 1


def _no_time() -> float:
    return 0.0


@dataclass(frozen=True, slots=True)
class Published:
    """A record as a read_committed reader has it, and the change in it."""

    partition: int
    offset: int
    key: bytes | None
    change: Change


def raw_records(kafka: LocalKafka, topic: str) -> list[Any]:
    """Every committed record of a topic with its headers, as the client has it, partition by partition in order."""
    config = {"bootstrap.servers": kafka.bootstrap, "group.id": "raw", "isolation.level": "read_committed",
              "enable.partition.eof": True, "auto.offset.reset": "earliest"}  # fmt: skip
    with closing(Consumer(config)) as consumer:
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        records: list[Any] = []
        at_end: set[int | None] = set()
        while len(at_end) < len(partitions):
            message = consumer.poll(60)
            assert message is not None
            if message.error() is not None:
                at_end.add(message.partition())
            else:
                records.append(message)
    return sorted(records, key=lambda message: (message.partition(), message.offset()))


def published(kafka: LocalKafka, prefix: str, topic: str) -> list[Published]:
    """Every committed record of a topic, partition by partition, decoded by the published schemas."""
    config: dict[str, bool | int | float | str] = {"bootstrap.servers": kafka.bootstrap}
    there = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=60).topics
    if topic not in there:
        return []
    with SchemaReader(config, prefix) as schemas, TopicReader(config, topic, beginning=True) as reader:
        return [
            Published(partition, record.offset, record.key, decode(record.value, schemas))
            for partition, record in sorted(reader.read_to_end(), key=itemgetter(0))
            if record.value is not None  # the end of a transaction that Kafka had left unmarked (contracts.md 4)
        ]


def appended(kafka: LocalKafka, topic: str) -> int:
    """How many records and marks of transactions a topic has, committed or not; 0 where it does not exist."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    there = admin.list_topics(timeout=60).topics
    if topic not in there:
        return 0
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client types only some of itself
    ends = {TopicPartition(topic, number): latest for number in there[topic].partitions}
    found = admin.list_offsets(ends, isolation_level=IsolationLevel.READ_UNCOMMITTED)
    return sum(future.result(60).offset for future in found.values())


def ints(records: Iterable[Published]) -> Counter[int]:
    """How often each partition key, an int, was published."""
    return Counter(int.from_bytes(record.change.key or b"", "big", signed=True) for record in records)


def in_log_order(records: Iterable[Published]) -> bool:
    """Whether positions and places in the mutation ascend in each partition, none twice."""
    places: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
    for record in records:
        source = record.change.source
        assert source is not None
        places[record.partition].append((*astuple(source.position), source.index))
    return all(a < b for list_ in places.values() for a, b in pairwise(list_))


def _toml(settings: Mapping[str, Mapping[str, object]]) -> str:
    """Strings, numbers, booleans and lists of strings look the same in JSON and in TOML."""
    sections = (
        "\n".join([f"[{name}]", *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in section.items())])
        for name, section in settings.items()
    )
    return "\n\n".join(sections) + "\n"
