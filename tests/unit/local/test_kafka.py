"""What a local Kafka is configured with."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tailrace.local.kafka import KafkaSettings, LocalKafka, cluster_id, java_properties, jvm_options, server_properties
from tailrace_schemas.errors import ServiceError

WHERE = Path("/some where/kafka")


@pytest.mark.parametrize(
    ("settings", "key", "value"),
    [
        (KafkaSettings(), "listeners", "PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2"),
        (KafkaSettings(address="127.0.0.2"), "advertised.listeners", "PLAINTEXT://127.0.0.2:1"),
        (KafkaSettings(), "auto.create.topics.enable", "false"),
        (KafkaSettings(properties={"auto.create.topics.enable": "true"}), "auto.create.topics.enable", "true"),
    ],
)
def test_properties(settings: KafkaSettings, key: str, value: str) -> None:
    assert server_properties(settings, WHERE, 1, 2)[key] == value


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain value", "plain value"),
        ("back\\slash", "back\\\\slash"),
        ("two\nlines", "two\\u000alines"),
        ("\u00fc", "\\u00fc"),
        ("\U0001f600", "\\ud83d\\ude00"),
    ],
)
def test_values_are_escaped_as_java_reads_them(value: str, written: str) -> None:
    assert java_properties({"key": value}) == f"key={written}\n"


def test_cluster_id_is_sixteen_bytes_and_no_flag() -> None:
    ids = {cluster_id() for _ in range(200)}
    assert len(ids) == 200
    for text in ids:
        assert len(base64.urlsafe_b64decode(text + "==")) == 16
        assert not text.startswith("-")


def test_jvm_options() -> None:
    options = jvm_options(KafkaSettings(heap_mib=64, log_level="info", jvm=("-Dlast=1",)))
    assert {"-Xms64m", "-Xmx64m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=info"} <= set(options)
    assert options[-1] == "-Dlast=1"


def test_port_is_not_known_before_the_start(tmp_path: Path) -> None:
    broker = LocalKafka(tmp_path)
    assert broker.log == tmp_path / "kafka.log"
    for name in ("port", "bootstrap"):
        with pytest.raises(ServiceError, match="no port before it is started"):
            getattr(broker, name)
