"""A real registry of Confluent's API: our schemas in it, its ids in messages, its refusals before any message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import ConfigCompatibilityLevel, Schema, SchemaRegistryClient, ServerConfig
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

import tailrace_spark
from tailrace.cli.checks.kafka import check_registry
from tailrace.errors import HeldError
from tailrace.local import LocalKafka, LocalRegistry, RegistrySettings
from tailrace.publish.registry import RegistryStore
from tailrace_common.kafka import read_to_end
from tailrace_common.kafka.topics import TopicMaker
from tailrace_common.settings import Settings
from tailrace_schemas.avro import Encoder, SchemaEntry, SchemaIds, schema_records
from tailrace_schemas.avro.names import Subjects
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.topics import Internal, internal_topic
from tailrace_spark.snapshot.publication import prepared
from tests.integration.bench import Bench
from tests.integration.stream_settings import stream_settings
from tests.services.certificates import Authority
from tests.unit.tables import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ids_of(
    config: dict[str, Any],
    encoder: Encoder,
    topic: str,
    known: Mapping[bytes, SchemaEntry] | None = None,
    *,
    subjects: Subjects = "TopicName",
    register: bool = True,
) -> SchemaIds:
    """What a registry says to a shape."""
    with closing(RegistryStore(config, subjects, register, known or {})) as store:
        return store.ids(encoder, topic)


def with_registry(registry: LocalRegistry) -> dict[str, dict[str, object]]:
    """Sections of an agent's settings."""
    return {"schemas": {"store": "registry"}, "schemas.registry": {"url": registry.url}}


def test_messages_carry_the_ids_of_the_registry(
    bench: Bench, registry: LocalRegistry, client: SchemaRegistryClient, spark: SparkSession
) -> None:
    topic = bench.topic()
    bench.create()
    with bench.agent(sections=with_registry(registry)) as agent:
        agent.until_ready()
        bench.run("INSERT INTO #.t (k, v) VALUES (1, 'one')")
        agent.until(lambda: len(bench.records()) == 1)
        bench.run("ALTER TABLE #.t ADD w int", "INSERT INTO #.t (k, v, w) VALUES (2, 'two', 2)")
        agent.until(lambda: len(bench.records()) == 2)
        assert agent.stop() == 0
    assert bench.key_counts() == {1: 1, 2: 1}
    records = [one for number in range(3) for one in read_to_end(bench.config, topic, number)]
    read: Any = AvroDeserializer(client)  # Confluent's own, which knows nothing of us
    decoded = [read(one.value, SerializationContext(topic, MessageField.VALUE)) for one in records]
    assert sorted((one["key"]["k"], one["columns"]["v"]) for one in decoded) == [(1, "one"), (2, "two")]
    keys = [read(one.key, SerializationContext(topic, MessageField.KEY)) for one in records]
    assert sorted(one["k"] for one in keys) == [1, 2]
    assert client.get_versions(f"{topic}-value") == [1, 2]
    assert client.get_versions(f"{topic}-key") == [1]
    own = stream_settings(bench.kafka, bench.prefix)
    frame = tailrace_spark.changes(spark, own, f"{bench.keyspace}.t")
    query = frame.writeStream.format("memory").queryName(bench.prefix).trigger(availableNow=True).start()
    query.awaitTermination()
    rows = spark.table(bench.prefix).collect()
    assert sorted((row.key.k, row.columns.v, row.columns.w) for row in rows) == [(1, "one", None), (2, "two", 2)]


def test_what_breaks_a_rule_is_reported_and_held_until_the_rule_gives_way(
    bench: Bench, registry: LocalRegistry, client: SchemaRegistryClient
) -> None:
    subject = f"{bench.topic()}-value"
    bench.run("CREATE TABLE #.t (k int PRIMARY KEY, v int) WITH cdc = true")
    with bench.agent(sections=with_registry(registry)) as agent:
        agent.until_ready()
        bench.run("INSERT INTO #.t (k, v) VALUES (1, 1)")
        agent.until(lambda: len(bench.records()) == 1)
        client.set_config(subject, ServerConfig(compatibility=ConfigCompatibilityLevel.BACKWARD))
        bench.run("DROP TABLE #.t")
        bench.create()
        agent.until(lambda: f"schema of {bench.keyspace}.t" in agent.status().get("degraded", {}))
        bench.run("INSERT INTO #.t (k, v) VALUES (2, 'two')")
        agent.until(lambda: "parked" in agent.status().get("degraded", {}))
        for words in agent.status()["degraded"].values():
            assert f"subject {subject}, which is BACKWARD" in words
            assert "(HTTP 409)" in words
        assert bench.key_counts() == {1: 1}
        assert client.get_versions(subject) == [1]
        client.set_config(subject, ServerConfig(compatibility=ConfigCompatibilityLevel.NONE))
        agent.until(lambda: len(bench.records()) == 2)
        agent.until(lambda: agent.faults() == {})
        assert agent.stop() == 0
    assert bench.key_counts() == {1: 1, 2: 1}


def test_check_says_the_registrys_rule(registry: LocalRegistry) -> None:
    own = {"store": "registry", "registry": {"url": registry.url}}
    (check,) = check_registry(Settings.model_validate({"schemas": own}))
    assert (check.ok, check.detail) == (True, f"{registry.url}, rule of subjects without their own: NONE")


def test_a_schema_that_somebody_else_has_to_register(registry: LocalRegistry, client: SchemaRegistryClient) -> None:
    topic = f"t{uuid4().hex}.ks.t"
    encoder = Encoder(table({"id": "int"}), topic.partition(".")[0])
    with pytest.raises(HeldError, match=f"subject {topic}-value lacks the table's schema"):
        ids_of({"url": registry.url}, encoder, topic, register=False)
    value = client.register_schema(f"{topic}-value", Schema(encoder.schema_text, "AVRO"))
    key = client.register_schema(f"{topic}-key", Schema(encoder.key_schema_text, "AVRO"))
    ids = ids_of({"url": registry.url}, encoder, topic, register=False)
    assert (int.from_bytes(ids.value, "big"), int.from_bytes(ids.key, "big")) == (value, key)


def test_an_id_that_another_registry_gave_before_is_not_used_again(registry: LocalRegistry) -> None:
    topic = f"t{uuid4().hex}.ks.t"
    encoder = Encoder(table({"id": "int"}), topic.partition(".")[0])
    ids = ids_of({"url": registry.url}, encoder, topic)
    before = SchemaEntry(schema_id=ids.value, topic=topic, table=encoder.table, avro='"string"')
    with pytest.raises(HeldError, match="another registry than before"):
        ids_of({"url": registry.url}, encoder, topic, {ids.value: before})


def test_nor_does_a_snapshot_use_it_again(registry: LocalRegistry, kafka: LocalKafka, prefix: str) -> None:
    """Its schema would take the other's place in the topic of schemas, and messages of that would not be read."""
    of_before, new = (Encoder(table({"id": "int"}, name=name), prefix) for name in ("before", "new"))
    ids = ids_of({"url": registry.url}, new, f"{prefix}.ks.new")
    settings = Settings.model_validate(
        {
            "kafka": {"bootstrap.servers": kafka.bootstrap},
            "topics": {"prefix": prefix},
            "schemas": {"store": "registry", "registry": {"url": registry.url}},
        }
    )
    TopicMaker(settings.kafka.reveal()).ensure_planned(settings.topics.internal_plan(Internal.SCHEMAS), create=True)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for key, value in schema_records(of_before, f"{prefix}.ks.before", ids):
        producer.produce(internal_topic(prefix, Internal.SCHEMAS), value, key)
    producer.flush()
    with pytest.raises(ServiceError, match="another registry than before"):
        prepared(settings, new.table)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[LocalRegistry, str]]:
    """A registry that wants TLS, user and password; and its authority's file."""
    authority = Authority()
    own = authority.issue("registry")
    files = {"ca.pem": authority.certificate, "own.pem": own.certificate, "own.key": own.key}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    users = "quarkus.security.users.embedded"
    properties = {
        "quarkus.tls.key-store.pem.0.cert": str(tmp_path / "own.pem"),
        "quarkus.tls.key-store.pem.0.key": str(tmp_path / "own.key"),
        f"{users}.enabled": "true",
        f"{users}.plain-text": "true",
        f"{users}.users.tailrace": "right-one",
        f"{users}.roles.tailrace": "user",
        "quarkus.http.auth.basic": "true",
        "quarkus.http.auth.permission.all.paths": "/*",
        "quarkus.http.auth.permission.all.policy": "authenticated",
    }
    with LocalRegistry(tmp_path / "registry", RegistrySettings(tls=True, properties=properties)) as registry:
        yield registry, str(tmp_path / "ca.pem")


def test_a_registry_that_demands_tls_and_a_password(guarded: tuple[LocalRegistry, str]) -> None:
    registry, ca = guarded
    encoder = Encoder(table({"id": "int"}), "p")
    right = {"url": registry.url, "ssl.ca.location": ca, "basic.auth.user.info": "tailrace:right-one"}
    assert len(ids_of(right, encoder, "p.ks.t", subjects="RecordName").value) == 4
    for wrong, says in (
        ({"basic.auth.user.info": "tailrace:wrong-one"}, "HTTP 401"),
        ({"ssl.ca.location": True}, "CERTIFICATE_VERIFY_FAILED"),
        ({"url": registry.url.replace("https", "http")}, "does not answer"),
    ):
        with pytest.raises(HeldError, match=says) as caught:
            ids_of({**right, **wrong}, encoder, "p.ks.t")
        assert "-one" not in str(caught.value)
