"""The Kafka sink's Avro on a real Kafka and a real registry, read by Confluent's own client."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka.schema_registry import ConfigCompatibilityLevel, SchemaRegistryClient, ServerConfig
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tailrace.local import LocalKafka, LocalRegistry
from tailrace.local.ports import free_port
from tailrace_common.kafka import Record, TopicReader
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import Summary
from tailrace_spark.sinks.protocol import ReachableSink, write_here
from tailrace_spark.sinks.registry import sink_of
from tests.integration.letters import letters_in
from tests.integration.stream_settings import stream_settings
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import Topic
from tests.unit.tables import table

U = "11111111-0000-4000-8000-000000000000"


def opened(kafka: LocalKafka, url: str, prefix: str, **more: object) -> ReachableSink:
    """The sink that a section makes."""
    section = {
        "type": "kafka", "topic": "{prefix}-out.{table}", "partitions": 1, "encoding": "avro",
        "registry": {"url": url}, **more,
    }  # fmt: skip
    settings = stream_settings(kafka, prefix, sinks={"out": section})
    return sink_of(settings, "out")


def records(kafka: LocalKafka, topic: str) -> list[Record]:
    with TopicReader({"bootstrap.servers": kafka.bootstrap}, topic, beginning=True) as reader:
        return [record for _, record in reader.read_to_end()]


def read(client: SchemaRegistryClient, kafka: LocalKafka, topic: str, schema: str | None = None) -> list[Any]:
    """(key, value) of a topic by Confluent's deserializer; `schema` is the reader's own of values, if it has one."""
    keys, values = AvroDeserializer(client), AvroDeserializer(client, schema)
    key, value = (SerializationContext(topic, field) for field in (MessageField.KEY, MessageField.VALUE))
    return [
        (keys(one.key, key), None if one.value is None else values(one.value, value)) for one in records(kafka, topic)
    ]


def versions(keyspace: str = "shop") -> tuple[Table, Table, Table]:
    """A definition, with columns added to it in front and behind, and with two of them dropped again."""
    columns = {"b": "text", "m": "map<text, timestamp>", "u": "uuid", "z": "frozen<map<text, int>>"}
    id_ = UUID(int=9)
    first = table({"k": "int"}, regular=columns, keyspace=keyspace, name="t", table_id=id_)
    more = {"a": "frozen<map<text, int>>", **columns, "zz": "map<text, timestamp>"}
    second = table({"k": "int"}, regular=more, keyspace=keyspace, name="t", table_id=id_)
    less = {name: kind for name, kind in more.items() if name not in ("b", "z")}
    return first, second, table({"k": "int"}, regular=less, keyspace=keyspace, name="t", table_id=id_)


@pytest.mark.promise("avro.compatible")
def test_another_reader_reads_what_was_written_as_the_table_changes(
    kafka: LocalKafka, registry: LocalRegistry, client: SchemaRegistryClient, prefix: str
) -> None:
    """The registry checks each version against all others in both directions; old readers read new records."""
    name, log = f"{prefix}-out.t", Topic()
    for part in ("key", "value"):
        client.set_config(f"{name}-{part}", ServerConfig(compatibility=ConfigCompatibilityLevel.FULL_TRANSITIVE))
    first, second, third = (Log(one) for one in versions())
    entry = [{"key": "x", "value": 1}]
    with closing(opened(kafka, registry.url, prefix, cloudevents="binary")) as sink:
        sink.reach()
        changes = [
            first.insert((1,), (), 10, b="one", u=U, m={"s": 1_700_000_000_000}, z=entry),
            second.insert((2,), (), 20, a=entry, b="two", z=entry, zz={"s": 1}),
            third.insert((3,), (), 30, a=entry, u=U),
            third.delete((1,), (), 40),
        ]
        assert write_here(sink, [log.piece(one) for one in changes]) == Summary(changes=4, rows=4)
    assert client.get_versions(f"{name}-value") == [1, 2, 3]
    assert client.get_versions(f"{name}-key") == [1]
    found = sorted(read(client, kafka, name), key=lambda one: one[1]["written"])
    assert [(key["k"], value["op"]) for key, value in found] == [
        (1, "insert"), (2, "insert"), (3, "insert"), (1, "delete"),
    ]  # fmt: skip
    one, two, three, _ = [value["columns"] for _, value in found]
    assert (one["b"], one["u"], one["z"]) == ("one", UUID(U), entry)
    assert [(item["key"], item["value"].isoformat()) for item in one["m"]["set"]] == [
        ("s", "2023-11-14T22:13:20+00:00")
    ]
    assert (two["a"], two["b"], two["z"]) == (entry, "two", entry)
    assert "b" not in three
    oldest = client.get_version(f"{name}-value", 1).schema.schema_str
    old = sorted(read(client, kafka, name, oldest), key=lambda one: one[1]["written"])
    assert [value["columns"]["b"] for _, value in old] == ["one", "two", None, None]
    assert {frozenset(value["columns"]) for _, value in old} == {frozenset("bmuz")}


@pytest.mark.promise("avro.refused", "files.once")
def test_a_table_that_the_registry_refuses_is_set_aside_and_the_others_go_on(
    kafka: LocalKafka, registry: LocalRegistry, client: SchemaRegistryClient, prefix: str
) -> None:
    """Until the rule gives way: then its changes go out again."""
    subject, topic = f"{prefix}-out.t-value", Topic()
    client.set_config(subject, ServerConfig(compatibility=ConfigCompatibilityLevel.BACKWARD))
    before = table({"k": "int"}, regular={"v": "int"}, keyspace="shop", name="t", table_id=UUID(int=1))
    after = table({"k": "int"}, regular={"v": "text"}, keyspace="shop", name="t", table_id=UUID(int=2))
    other = replace(before, name="other")
    with closing(opened(kafka, registry.url, prefix)) as sink:
        assert write_here(sink, [topic.piece(Log(before).insert((1,), (), 1, v=1))]).dead_letters == 0
        changed, beside = Log(after).insert((2,), (), 2, v="two"), Log(other).insert((3,), (), 3, v=3)
        assert write_here(sink, [topic.piece(changed, beside)]) == Summary(changes=2, rows=1, dead_letters=1)
        [letter] = letters_in(kafka, prefix)
        assert f"breaks the rule of subject {subject}, which is BACKWARD" in letter.reason
        assert letter.message == b"\x00message"
        client.set_config(subject, ServerConfig(compatibility=ConfigCompatibilityLevel.NONE))
        again = Log(after).insert((4,), (), 4, v="four")
        assert write_here(sink, [topic.piece(again)]) == Summary(changes=1, rows=1)
    assert [value["columns"]["v"] for _, value in read(client, kafka, f"{prefix}-out.t")] == [1, "four"]
    assert [key["k"] for key, _ in read(client, kafka, f"{prefix}-out.other")] == [3]


@pytest.mark.promise("avro.refused", "files.once")
@pytest.mark.long
def test_a_registry_that_does_not_answer_holds_the_batch(
    kafka: LocalKafka, registry: LocalRegistry, client: SchemaRegistryClient, prefix: str
) -> None:
    piece = Topic().piece(Log(versions()[0]).insert((1,), (), 1))
    nobody = f"http://127.0.0.1:{free_port('127.0.0.1')}"
    with closing(opened(kafka, nobody, prefix, registry={"url": nobody})) as sink:
        with pytest.raises(ServiceError, match=f"the schema registry at {nobody}"):
            sink.reach()
        with pytest.raises(ServiceError, match=r"connect to the schema registry at .*fix \[sink.out.registry\]"):
            write_here(sink, [piece])
    with closing(opened(kafka, registry.url, prefix)) as sink:
        assert write_here(sink, [piece]) == Summary(changes=1, rows=1)
    assert len(read(client, kafka, f"{prefix}-out.t")) == 1
