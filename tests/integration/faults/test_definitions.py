"""Definitions at the largest sizes that Cassandra takes: none of them keeps another table's changes back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from string import ascii_lowercase, digits
from typing import Final

import pytest
from cassandra.cluster import Session
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource  # type: ignore[attr-defined]  # its __all__ forgets it

from tailrace.history.events import decode_event
from tailrace.local import CassandraSettings, LocalCassandra, LocalKafka
from tailrace_common.kafka import read_to_end
from tests.integration.agents import AgentProcess, cql, create_keyspace, ints, published, settings_for, start_here

NESTED: Final = "five types of fifteen fields, each of the one before"
LONG_NAMES: Final = "400 columns of long names"
MANY: Final = "3,850 columns"


def shape(kind: str) -> tuple[list[str], str]:
    """The types that a table of this kind needs, and its columns beside `k`."""
    if kind == NESTED:
        kinds = ["int", *(f"frozen<t{level}>" for level in range(4))]
        fields = [", ".join(f"f{number} {of}" for number in range(15)) for of in kinds]
        types = [f"CREATE TYPE #.t{level} ({some})" for level, some in enumerate(fields)]
        return types, "v text, w frozen<t4>"
    random = Random(1)
    long = ["".join(random.choices(ascii_lowercase + digits, k=2000)) for _ in range(400)]
    names = [f"c{name}" for name in long] if kind == LONG_NAMES else [f"column_{number}" for number in range(3850)]
    return [], ", ".join(["v text", *(f"{name} int" for name in names)])


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCassandra]:
    """A node with Cassandra's default segment size: a mutation, of DDL too, may have 16 MiB."""
    settings = CassandraSettings(segment_mib=32, heap_mib=1024)
    with LocalCassandra(tmp_path_factory.mktemp("large") / "node", settings) as node:
        yield node


def execute(session: Session, statement: str) -> None:
    """DDL of this size takes a node its time."""
    session.execute(statement, timeout=120)


def limit(admin: AdminClient, topic: str, size: int) -> None:
    """Set a topic's max.message.bytes."""
    source, operation = ConfigSource.DYNAMIC_TOPIC_CONFIG, AlterConfigOpType.SET
    entry = ConfigEntry("max.message.bytes", str(size), source=source, incremental_operation=operation)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)


@pytest.mark.promise("agent.large-definition-small-topics")
@pytest.mark.long
def test_a_large_definition_with_topics_of_small_limits(
    node: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path
) -> None:
    """Where the topics take less than the definition has, the history is cut, and the event has no definition. The
    announcement does not fit: that table alone is parked, with the reason, until its topic takes it."""
    settings = settings_for(node, kafka, prefix, keyspace_name)
    large, small = (f"{prefix}.{keyspace_name}.{name}" for name in ("large", "small"))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    _, columns = shape(LONG_NAMES)
    with cql(node, seconds=120) as session:
        create_keyspace(session, keyspace_name)
        start_here(session, node, kafka, prefix, keyspace_name)
        execute(session, f"CREATE TABLE {keyspace_name}.small (k int PRIMARY KEY) WITH cdc = true")
        with AgentProcess(tmp_path, settings) as agent:
            agent.until_ready()
            assert agent.stop() == 0, agent.words()
        limit(admin, f"{prefix}.schemas", 1_048_588)
        with AgentProcess(tmp_path, settings) as agent:
            agent.until_ready()
            for topic in ("schema-history", "schema-changes"):  # while it runs, too
                limit(admin, f"{prefix}.{topic}", 200_000)
            execute(session, f"CREATE TABLE {keyspace_name}.large (k int PRIMARY KEY, {columns}) WITH cdc = true")
            execute(session, f"INSERT INTO {keyspace_name}.large (k, v) VALUES (1, 'x')")
            execute(session, f"INSERT INTO {keyspace_name}.small (k) VALUES (1)")
            agent.until(lambda: set(ints(published(kafka, prefix, small))) == {1}, 120)
            agent.until(lambda: "parked" in agent.status()["degraded"])
            assert f"max.message.bytes of topic {prefix}.schemas" in agent.status()["degraded"]["parked"]
            assert agent.stop() == 0, agent.words()
        limit(admin, f"{prefix}.schemas", 16 << 20)
        with AgentProcess(tmp_path, settings) as agent:
            execute(session, f"INSERT INTO {keyspace_name}.large (k, v) VALUES (2, 'x')")
            agent.until(lambda: set(ints(published(kafka, prefix, large))) == {1, 2}, 120)
            agent.until(lambda: agent.faults() == {})
            assert agent.stop() == 0, agent.words()
    config: dict[str, bool | int | float | str] = {"bootstrap.servers": kafka.bootstrap}
    events = [decode_event(record.value or b"")[1] for record in read_to_end(config, f"{prefix}.schema-changes", 0)]
    (created,) = (event for event in events if (event.keyspace, event.name) == (keyspace_name, "large"))
    assert (str(created), created.table) == (f"table {keyspace_name}.large created", None)


@pytest.mark.promise("agent.large-definition")
@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "cdc"),
    [(NESTED, "true"), (LONG_NAMES, "true"), (MANY, "false")],
    ids=["nested-cdc", "long-names-cdc", "many-no-cdc"],
)
def test_a_large_definition(
    node: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path, kind: str, cdc: str
) -> None:
    """Changes of another table go on when the definition comes, and after a restart; the large table's own changes
    are published too."""
    settings = settings_for(node, kafka, prefix, keyspace_name)
    large, small = (f"{prefix}.{keyspace_name}.{name}" for name in ("large", "small"))
    types, columns = shape(kind)
    with cql(node, seconds=120) as session:
        create_keyspace(session, keyspace_name)
        start_here(session, node, kafka, prefix, keyspace_name)
        execute(session, f"CREATE TABLE {keyspace_name}.small (k int PRIMARY KEY) WITH cdc = true")
        with AgentProcess(tmp_path, settings) as agent:
            agent.until_ready()
            for statement in types:
                execute(session, statement.replace("#", keyspace_name))
            execute(session, f"CREATE TABLE {keyspace_name}.large (k int PRIMARY KEY, {columns}) WITH cdc = {cdc}")
            execute(session, f"INSERT INTO {keyspace_name}.large (k, v) VALUES (1, 'x')")
            execute(session, f"INSERT INTO {keyspace_name}.small (k) VALUES (1)")
            agent.until(lambda: set(ints(published(kafka, prefix, small))) == {1}, 120)
            assert agent.stop() == 0, agent.words()
        with AgentProcess(tmp_path, settings) as agent:
            execute(session, f"ALTER TABLE {keyspace_name}.large ADD more int")
            execute(session, f"INSERT INTO {keyspace_name}.large (k, v, more) VALUES (2, 'x', 1)")
            execute(session, f"INSERT INTO {keyspace_name}.small (k) VALUES (2)")
            agent.until(lambda: set(ints(published(kafka, prefix, small))) == {1, 2}, 120)
            assert agent.faults() == {}
            assert agent.stop() == 0, agent.words()
    assert set(ints(published(kafka, prefix, large))) == ({1, 2} if cdc == "true" else set())
