"""Consumers of their own on real topics, in both framings and two forms of values: with our decoder, and without."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from tailrace.local import LocalCassandra, LocalKafka, LocalRegistry
from tailrace_schemas import Schemas, UnknownSchemaError, decode
from tests.integration.agents import AgentProcess, cql, create_keyspace, ints, published, settings_for, start_here

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
NONSENSE: Final = ((b"12345678", b'{"id": 5}'), (b"23456789", b"[" * 50_000))


@pytest.fixture
def topic(
    cassandra: LocalCassandra,
    kafka: LocalKafka,
    registry: LocalRegistry,
    prefix: str,
    keyspace_name: str,
    tmp_path: Path,
) -> str:
    """A table's topic with a change in each framing; somebody has put nonsense among the schemas in between."""
    name, settings = f"{prefix}.{keyspace_name}.t", settings_for(cassandra, kafka, prefix, keyspace_name)
    stores: tuple[dict[str, dict[str, object]], ...] = (
        {},
        {"schemas": {"store": "registry"}, "schemas.registry": {"url": registry.url}, "avro": {"uuids": "fixed"}},
    )
    with cql(cassandra) as session:
        create_keyspace(session, keyspace_name)
        start_here(session, cassandra, kafka, prefix, keyspace_name)
        session.execute(f"CREATE TYPE {keyspace_name}.home (street text, zip int)")
        session.execute(f"CREATE TABLE {keyspace_name}.t (k int PRIMARY KEY, v text, u uuid, h home) WITH cdc = true")
        for key, store in enumerate(stores, 1):
            with AgentProcess(tmp_path, settings | store, f"agent{key}") as agent:
                session.execute(
                    f"INSERT INTO {keyspace_name}.t (k, v, u, h) "
                    f"VALUES ({key}, 'v{key}', {UUID(int=key)}, {{street: 's', zip: {key}}})"
                )
                agent.until(lambda: len(published(kafka, prefix, name)) == key)  # noqa: B023 - it is called here
                assert agent.stop() == 0, agent.words()
            producer = Producer({"bootstrap.servers": kafka.bootstrap})
            for schema_id, value in NONSENSE:
                producer.produce(f"{prefix}.schemas", value, schema_id, 0)
            assert producer.flush(60) == 0
    return name


def run(program: str, kafka: LocalKafka, prefix: str, topic: str) -> list[dict[str, Any]]:
    """The lines that an example prints."""
    command = [sys.executable, str(EXAMPLES / program), kafka.bootstrap, prefix, topic, "--max", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def read(kafka: LocalKafka, topic: str, partitions: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Keys and values of a topic, by a plain confluent-kafka consumer."""
    own = {"isolation.level": "read_committed", "group.id": "none", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, **own})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
    ended = 0
    while ended < partitions:
        message = consumer.poll(60)
        assert message is not None
        if (error := message.error()) is None:
            yield message.key(), message.value()
        else:
            assert error.code() == KafkaError._PARTITION_EOF
            ended += 1
    consumer.close()


@pytest.mark.promise("consuming.both-framings")
def test_every_consumer_reads_both_framings(kafka: LocalKafka, prefix: str, topic: str) -> None:
    """With `tailrace_schemas.decode`, by the example that uses it, and by confluent-kafka and fastavro alone; nonsense
    among the schemas stops none of them, and an agent starts behind it."""
    schemas = Schemas()
    for key, value in read(kafka, f"{prefix}.schemas", 1):
        schemas.add(key, value)
    messages = [value for _, value in read(kafka, topic, 3) if value is not None]
    assert {message[:1] for message in messages} == {b"\xc3", b"\0"}
    changes = sorted((decode(message, schemas) for message in messages), key=lambda change: change.key or b"")
    assert [int.from_bytes(change.key or b"", "big") for change in changes] == [1, 2]
    assert [cell.value for change in changes for cell in change.cells if cell.column.name == "v"] == [b"v1", b"v2"]
    uuids = [cell.value for change in changes for cell in change.cells if cell.column.name == "u"]
    assert uuids == [UUID(int=key).bytes for key in (1, 2)]
    assert schemas.skipped == 2 * len(NONSENSE)
    with pytest.raises(UnknownSchemaError):
        decode(messages[0], Schemas())

    with_ours = run("consume_with_tailrace.py", kafka, prefix, topic)
    assert sorted((line["key"]["k"], line["columns"]["v"]) for line in with_ours) == [(1, "v1"), (2, "v2")]
    without = [line for line in run("consume_without_tailrace.py", kafka, prefix, topic) if "op" in line]
    assert sorted((line["key"]["k"], line["columns"]["v"]) for line in without) == [(1, "v1"), (2, "v2")]
    assert {line["columns"]["u"] for line in without} == {str(UUID(int=1)), UUID(int=2).hex}
    assert [line["columns"]["h"]["set"]["street"] for line in without] == ["s", "s"]
    assert ints(published(kafka, prefix, topic)) == {1: 1, 2: 1}
