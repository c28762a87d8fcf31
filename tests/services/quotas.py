"""Kafka's own quota on what a client may produce, set and taken back by Kafka's tool."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tailrace.local import LocalKafka
from tailrace.local.process import run_to_end
from tailrace_common.java.find import find_java
from tailrace_common.java.jars import fetch_sets


@contextmanager
def producer_quota(kafka: LocalKafka, client: str, bytes_per_second: int, directory: Path) -> Iterator[None]:
    """Let producers with this `client.id` send so many bytes a second, until the exit.

    The Python client has no call for it.
    """
    _alter(kafka, client, ("--add-config", f"producer_byte_rate={bytes_per_second}"), directory)
    try:
        yield
    finally:
        _alter(kafka, client, ("--delete-config", "producer_byte_rate"), directory)


def _alter(kafka: LocalKafka, client: str, change: tuple[str, str], directory: Path) -> None:
    classpath = ":".join(map(str, fetch_sets("kafka")))
    tool = (str(find_java().program), "-XX:TieredStopAtLevel=1", "-cp", classpath, "kafka.admin.ConfigCommand")
    where = ("--bootstrap-server", kafka.bootstrap, "--entity-type", "clients", "--entity-name", client)
    run_to_end("kafka-quota", (*tool, *where, "--alter", *change), directory)
