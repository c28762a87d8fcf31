"""What Kafka does not take, on a real node and a real Kafka: it waits alone, and nothing of it is lost."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource  # type: ignore[attr-defined]  # its __all__ forgets it

from tailrace.local import LocalCassandra, LocalKafka
from tailrace_common.kafka import TopicReader
from tailrace_schemas.change import Origin
from tests.integration.agents import AgentProcess, cql, create_keyspace, ints, published, settings_for, start_here


@pytest.mark.long
def test_too_large_and_deleted(
    cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path
) -> None:
    """A change over its topic's limit goes to dead letters at once, its segment is kept, and with a higher limit the
    next start publishes it. A topic that is deleted under the agent parks its table alone, and is made anew."""
    settings = settings_for(cassandra, kafka, prefix, keyspace_name)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    large, other = f"{prefix}.{keyspace_name}.large", f"{prefix}.{keyspace_name}.other"
    with cql(cassandra) as session:
        create_keyspace(session, keyspace_name)
        start_here(session, cassandra, kafka, prefix, keyspace_name)
        for name in ("large", "other"):
            session.execute(f"CREATE TABLE {keyspace_name}.{name} (k int PRIMARY KEY, v blob) WITH cdc = true")
        with AgentProcess(tmp_path, settings) as agent:
            session.execute(f"INSERT INTO {keyspace_name}.large (k, v) VALUES (0, 0x00)")
            agent.until(lambda: ints(published(kafka, prefix, large)) == Counter([0]))
            assert agent.stop() == 0
        _limit(admin, large, 20_000)
        insert = session.prepare(f"INSERT INTO {keyspace_name}.large (k, v) VALUES (?, ?)")
        session.execute(insert, (1, bytes(50_000)))
        session.execute(insert, (2, bytes(10_000)))
        session.execute(f"INSERT INTO {keyspace_name}.other (k, v) VALUES (1, 0x00)")
        with AgentProcess(tmp_path, settings) as agent:
            agent.until(lambda: agent.count("dead_letters") == 1)
            agent.until(lambda: ints(published(kafka, prefix, large)) == Counter([0, 2]))
            agent.until(lambda: ints(published(kafka, prefix, other)) == Counter([1]))
            assert "max.message.bytes" in agent.status()["degraded"]["parked"]

            # Deleted: what it had is its owner's loss, what comes is not.
            admin.delete_topics([other])[other].result(60)
            session.execute(f"INSERT INTO {keyspace_name}.other (k, v) VALUES (2, 0x00)")
            session.execute(insert, (3, b"x"))
            agent.until(lambda: ints(published(kafka, prefix, large)) == Counter([0, 2, 3]))
            agent.until(lambda: ints(published(kafka, prefix, other)) == Counter([2]), 90)
            assert "was deleted under this agent" in agent.status()["degraded"][f"topic {other}"]
            assert agent.count("topics_recreated") == 1
            assert agent.stop() == 3
        _limit(admin, large, 1 << 20)
        with AgentProcess(tmp_path, settings) as agent:
            agent.until(lambda: ints(published(kafka, prefix, large)) == Counter([0, 1, 2, 3]))
            agent.until(lambda: "parked" not in agent.status()["degraded"])
            assert agent.stop() == 0
    (one,) = (record for record in published(kafka, prefix, large) if ints([record]) == Counter([1]))
    assert one.change.source is not None
    assert one.change.source.origin is Origin.PARKED
    config: dict[str, bool | int | float | str] = {"bootstrap.servers": kafka.bootstrap}
    with TopicReader(config, f"{prefix}.dead-letter", beginning=True) as reader:
        (letter,) = (json.loads(record.value or b"") for _, record in reader.read_to_end())
    assert (letter["table"], len(letter["mutations"])) == (f"{keyspace_name}.large", 1)


def _limit(admin: AdminClient, topic: str, size: int) -> None:
    entry = ConfigEntry(
        "max.message.bytes",
        str(size),
        source=ConfigSource.DYNAMIC_TOPIC_CONFIG,
        incremental_operation=AlterConfigOpType.SET,
    )
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)
