"""Debezium's connector for Cassandra 5, a Java program of its own, fetched from Maven Central."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from benchmarks.agent.processes import Measured
from benchmarks.agent.programs import Task
from tailrace_common.java.find import find_java
from tailrace_common.java.jars import Jar, cache_directory, fetch

VERSION: Final = "3.4.1.Final"
JAR: Final = Jar(
    f"io.debezium:debezium-connector-cassandra-5:{VERSION}:jar-with-dependencies",
    "8f443ad760fbe6bb84fc290e98d43e26a189a81c8817cd12ea9e12ef4f66758e",
    104_959_994,
)

# Its offsets file is rewritten for every so many records: rarely, it has less to do. Real time: sections of a
# segment as they are finished, not whole segments.
FOR_THROUGHPUT: Final[Mapping[str, str]] = {"offset.flush.interval.ms": "10000", "max.offset.flush.size": "100000"}
FOR_LATENCY: Final[Mapping[str, str]] = {
    **FOR_THROUGHPUT,
    "commit.log.real.time.processing.enabled": "true",
    "commit.log.marked.complete.poll.interval.ms": "100",
    "cdc.dir.poll.interval.ms": "100",
}


class Debezium:
    """The connector with JSON messages without schemas, which is its cheapest form, and settings of one's choice."""

    makes_topics = False

    def __init__(self, kind: str, settings: Mapping[str, str]) -> None:
        self._kind = kind
        self._settings = dict(settings)

    @property
    def name(self) -> str:
        """Version and kind of settings."""
        return f"Debezium {VERSION}, {self._kind}"

    def start(self, task: Task) -> Measured:
        """Run it in a Java of its own, with a heap of 1 GiB at most."""
        (jar,) = fetch([JAR], cache_directory() / "jars")
        place = task.directory
        for name in ("relocation", "offsets"):
            (place / name).mkdir()
        (place / "cassandra.yaml").write_text(json.dumps(_node_settings(task)))
        (place / "driver.conf").write_text(_DRIVER % f"{task.node.address}:{task.node.port}")
        (place / "logback.xml").write_text(_LOGBACK)
        (place / "connector.properties").write_text(_lines(self._properties(task)))
        options = ("-Xms512m", "-Xmx1g", "-Djava.net.preferIPv4Stack=true", *_OPENED)
        log = f"-Dlogback.configurationFile={(place / 'logback.xml').as_uri()}"
        program = ("-jar", str(jar), str(place / "connector.properties"))
        return Measured((str(find_java().program), *options, log, *program), place)

    def ready(self, run: Measured) -> float | None:
        """It does not say."""
        del run
        return None

    def _properties(self, task: Task) -> dict[str, str]:
        converter = "org.apache.kafka.connect.json.JsonConverter"
        return {
            "topic.prefix": task.prefix,
            "connector.name": task.prefix,
            "cassandra.node.id": f"{task.prefix}-node",
            "cassandra.cluster.name": task.node.settings.cluster_name,
            "cassandra.config": str(task.directory / "cassandra.yaml"),
            "cassandra.driver.config.file": str(task.directory / "driver.conf"),
            "commit.log.relocation.dir": str(task.directory / "relocation"),
            "offset.backing.store.dir": str(task.directory / "offsets"),
            "http.port": "0",
            "snapshot.mode": "never",
            "snapshot.consistency": "ONE",
            "kafka.producer.bootstrap.servers": task.bootstrap,
            "kafka.producer.acks": "all",
            "key.converter": converter,
            "value.converter": converter,
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            **self._settings,
        }


def _node_settings(task: Task) -> dict[str, object]:
    """The node's cassandra.yaml, which is JSON here, with the directory that is to be read."""
    settings: dict[str, object] = json.loads((task.node.directory / "conf" / "cassandra.yaml").read_text())
    return settings | {"cdc_raw_directory": str(task.cdc_raw)}


def _lines(properties: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in properties.items())


_DRIVER: Final = """\
datastax-java-driver {
  basic.contact-points = ["%s"]
  basic.load-balancing-policy.local-datacenter = "datacenter1"
  basic.request.timeout = 20 seconds
}
"""

_LOGBACK: Final = """\
<configuration>
 <statusListener class="ch.qos.logback.core.status.NopStatusListener"/>
 <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
  <encoder><pattern>%date{ISO8601} %-5level %logger{20} - %msg%n</pattern></encoder>
 </appender>
 <root level="INFO"><appender-ref ref="OUT"/></root>
</configuration>
"""

# What Cassandra's classes in it need of a Java 17.
_OPENED: Final = tuple(
    f"--add-{kind}={package}=ALL-UNNAMED"
    for kind, packages in {
        "exports": (
            "java.base/jdk.internal.misc",
            "java.base/jdk.internal.ref",
            "java.base/sun.nio.ch",
            "java.management.rmi/com.sun.jmx.remote.internal.rmi",
            "java.rmi/sun.rmi.registry",
            "java.rmi/sun.rmi.server",
            "java.sql/java.sql",
            "java.base/java.lang.ref",
            "jdk.unsupported/sun.misc",
        ),
        "opens": (
            "java.base/java.lang.module",
            "java.base/jdk.internal.loader",
            "java.base/jdk.internal.ref",
            "java.base/jdk.internal.reflect",
            "java.base/jdk.internal.math",
            "java.base/jdk.internal.module",
            "java.base/jdk.internal.util.jar",
            "jdk.management/com.sun.management.internal",
            "java.base/sun.nio.ch",
            "java.base/java.io",
            "java.base/java.lang",
            "java.base/java.lang.reflect",
            "java.base/java.util",
            "java.base/java.nio",
        ),
    }.items()
    for package in packages
)
