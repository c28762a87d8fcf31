"""What readers of Kafka may rely on while agents die, or run without transactions."""

from __future__ import annotations

import json
import os
import shlex
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its __all__ forgets it
from typer.testing import CliRunner

from tailrace.cli.main import complete
from tailrace.local import LocalCassandra, LocalKafka
from tailrace_common.kafka import TopicReader
from tailrace_common.topics import ProgressReader, SchemaReader
from tailrace_schemas.avro import decode
from tailrace_schemas.position import Position
from tests.integration.bench import Bench
from tests.support.background import Background
from tests.support.waiting import until


class Stage(Bench):
    """With a table t, whose keys count up."""

    written = 0

    def write_more(self, count: int, text: str = "v") -> None:
        """So many rows more."""
        keys = range(self.written, self.written + count)
        self.write(keys, text=text)
        self.written = keys.stop

    def load(self) -> Background:
        """A row now and then, meanwhile."""
        return Background(lambda: self.write_more(3))


@pytest.fixture
def stage(
    cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path
) -> Iterator[Stage]:
    """A table, and the prefix's agent to begin at this instant."""
    with Stage.begun(cassandra, kafka, prefix, keyspace_name, tmp_path) as stage:
        stage.create()
        yield stage


PLAIN = {"agent": {"delivery": "at-least-once"}}


@pytest.mark.promise("agent.progress-behind-data")
def test_progress_never_runs_ahead_of_a_reader(stage: Stage) -> None:
    """Whoever reads the progress first, and then the topic to its end, has every change at or below it; and in the end
    it covers all of them."""
    seen: set[Position] = set()
    looks: list[tuple[Position, frozenset[Position]]] = []
    with stage.agent(sections={"agent": {"progress_seconds": 0.05}}) as agent:
        stage.write_more(1)
        agent.until(lambda: agent.count("changes") >= 1)  # so its topic is there
        with (
            SchemaReader(stage.config, stage.prefix) as schemas,
            TopicReader(stage.config, stage.topic(), beginning=True) as reader,
            ProgressReader(stage.config, stage.prefix) as told,
        ):
            schemas.refresh()

            def look() -> bool:
                progress = told.read()
                for _, record in reader.read_to_end():
                    source = decode(record.value or b"", schemas).source
                    assert source is not None
                    seen.add(source.position)
                if progress:
                    looks.append((progress[0].position, frozenset(seen)))
                # Caught up alone may be said of an earlier moment: the topic is read after the progress.
                covers = bool(progress) and progress[0].caught_up and progress[0].position >= max(seen)
                return covers and len(seen) == stage.written

            def has_moved() -> bool:
                look()
                return len({position for position, _ in looks}) > 10

            with stage.load():
                until(has_moved, "progress that moves ten times")
            until(look, "all that was written, and progress that covers it")
        assert agent.stop() == 0
    for position, known in looks:
        assert {place for place in seen if place <= position} <= known


def test_topics_that_their_owner_makes(stage: Stage) -> None:
    """Without the right to create: the agent says what is missing, the plan prints it, and with that it runs."""
    settings = {"topics": {"create": False}}
    with stage.agent("early", settings) as early:
        assert early.ended() == 2
    assert "topics.create is false, and these topics are missing" in early.words()
    answer = CliRunner().invoke(complete(), ["topics", "plan", "-c", str(early.settings), "--commands"])
    assert answer.exit_code == 0, answer.output
    missing = [line for line in answer.stdout.splitlines() if line.startswith("kafka-topics.sh")]
    words = [shlex.split(line) for line in missing]
    made = [
        NewTopic(
            line[line.index("--topic") + 1],
            int(line[line.index("--partitions") + 1]),
            int(line[line.index("--replication-factor") + 1]),
            config=dict(line[number + 1].split("=", 1) for number, word in enumerate(line) if word == "--config"),
        )
        for line in words
    ]
    assert stage.topic() in {topic.topic for topic in made}
    admin = AdminClient(stage.config)
    for future in admin.create_topics(made).values():
        future.result(60)
    answer = CliRunner().invoke(complete(), ["topics", "plan", "-c", str(early.settings)])
    rows = [json.loads(line) for line in answer.stdout.splitlines() if line.startswith("{")]
    assert {row["state"] for row in rows} == {"there"}
    with stage.agent(sections=settings) as agent:
        stage.write_more(10)
        agent.until(lambda: agent.count("changes") >= 10)
        assert agent.stop() == 0
    assert stage.key_counts() == Counter(range(10))


@pytest.mark.promise("agent.at-least-once")
def test_without_transactions_a_kill_loses_nothing(stage: Stage) -> None:
    """Killed under load: every change is there, some twice. And no second agent reads beside the first."""
    with stage.load(), stage.agent("first", PLAIN) as agent:
        agent.until_ready()
        agent.until(lambda: agent.count("changes") >= 30)
        agent.kill()
    with stage.agent("last", PLAIN) as agent:
        agent.until_ready()
        with stage.agent("second", PLAIN) as second:
            assert second.ended() == 5
        assert "another agent reads" in second.words()
        agent.until(lambda: set(stage.key_counts()) >= set(range(stage.written)))
        assert agent.stop() == 0, agent.words()
    assert set(stage.key_counts()) == set(range(stage.written))


@pytest.mark.promise("agent.bounded-memory")
@pytest.mark.long
def test_memory_is_bounded_while_kafka_stands_still(stage: Stage) -> None:
    """A backlog of many times the buffer, and transactions that would take all of it: the agent's peak stays within
    what it had when it was ready, the buffer, and ROOM; everything arrives once when Kafka is back."""
    megabytes, buffer, size = 400, 8, 300_000
    large = {"buffer_mebibytes": buffer, "transaction_changes": 1_000_000, "transaction_milliseconds": 5_000}
    with stage.agent(sections={"agent": large, "topics": {"max_message_bytes": 1 << 20}}) as agent:
        agent.until_ready()
        stage.write_more(100)
        agent.until(lambda: agent.count("changes") >= 100)
        ready = agent.most_memory
        agent.signal(signal.SIGSTOP)
        for _ in range(megabytes // 10):
            stage.write_more(10_000_000 // size, "x" * size)
        agent.signal(signal.SIGCONT)
        agent.until(lambda: agent.count("changes") > 100)
        os.kill(stage.kafka.pid, signal.SIGSTOP)
        try:
            agent.until(lambda: "service" in agent.status().get("degraded", {}))
        finally:
            os.kill(stage.kafka.pid, signal.SIGCONT)
        agent.until(lambda: agent.count("changes") >= stage.written, 240)
        peak = agent.most_memory
        assert agent.stop() == 0, agent.words()
    assert stage.key_counts() == Counter(range(stage.written))
    assert peak - ready < buffer + ROOM, f"{ready} MiB when it was ready, {peak} MiB at most"


ROOM = 24
"""MiB: what is read ahead, a segment's pages, messages being made, and librdkafka's own copies on their way out."""
