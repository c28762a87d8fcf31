"""A real Cassandra node on a loopback address, its commit log and cdc_raw where an agent can read them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tailrace.local.ports import settle_ports
from tailrace.local.process import Launch, run_to_end
from tailrace.local.service import LocalService
from tailrace_common.java.find import find_java
from tailrace_common.java.jars import fetch_sets
from tailrace_schemas.errors import ServiceError


@dataclass(frozen=True, slots=True, kw_only=True)
class CassandraSettings:
    """How a node is set up. Small and quick by default; the commit log turns over after a megabyte.

    `release` is one of RELEASES; those but 5.0 are there so that what they write can be tested.
    `port` and `storage_port` 0: a free one. `seeds` empty: the node itself; all nodes of a ring share `storage_port`.
    `tokens` empty: `num_tokens` random ones. `jmx_port` None: no JMX, and no `nodetool`; 0: a free port. `yaml` is
    laid over cassandra.yaml, key by key; `jvm` follows the other JVM options. `start_seconds`: how long it may take
    until it serves CQL.
    """

    release: str = "5.0"
    address: str = "127.0.0.1"
    port: int = 0
    storage_port: int = 0
    jmx_port: int | None = None
    cluster_name: str = "tailrace"
    seeds: tuple[str, ...] = ()
    tokens: tuple[int, ...] = ()
    num_tokens: int = 4
    segment_mib: int = 1
    sync_period_ms: int = 200
    cdc_total_mib: int = 1024
    heap_mib: int = 512
    ring_delay_ms: int = 100
    yaml: Mapping[str, object] = field(default_factory=dict)
    jvm: tuple[str, ...] = ()
    start_seconds: float = 120.0


class LocalCassandra(LocalService):
    """One node below `directory`. `start` returns when CQL is served on `address`:`port`."""

    def __init__(self, directory: Path, settings: CassandraSettings | None = None) -> None:
        super().__init__("cassandra", directory)
        self.settings = settings or CassandraSettings()
        self.address = self.settings.address
        self._ports: dict[str, int] = {}

    @property
    def port(self) -> int:
        """The CQL port. Raises ServiceError before the first start, when it is not settled yet."""
        return self._port("cql")

    @property
    def storage_port(self) -> int:
        """The port between nodes; the same for every node of a ring."""
        return self._port("storage")

    @property
    def cdc_raw(self) -> Path:
        """Where Cassandra links the segments of its commit log for CDC."""
        return self.directory / "data" / "cdc_raw"

    @property
    def commitlog(self) -> Path:
        """Where the commit log's segments are."""
        return self.directory / "data" / "commitlog"

    def nodetool(self, *arguments: str) -> str:
        """Run Cassandra's nodetool against this node and return what it prints.

        Raises ServiceError when it fails, or the node was set up without JMX.
        """
        if self.settings.jmx_port is None:
            raise ServiceError("nodetool needs JMX: start the node with CassandraSettings(jmx_port=0)")
        temporary = self.directory / "tmp"
        options = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Duser.home={temporary}")
        quiet = (self.directory / "conf" / "logback-tools.xml").as_uri()
        properties = (f"-Dcassandra.storagedir={temporary}", f"-Dlogback.configurationFile={quiet}")
        tool = ("org.apache.cassandra.tools.NodeTool", "-h", "127.0.0.1", "-p", str(self._port("jmx")))
        java = (str(find_java().program), *options, *properties, *_OPENED, *_classpath(self._jars()))
        return run_to_end("nodetool", (*java, *tool, *arguments), self.directory)

    def _prepare(self) -> Launch:
        settings = self.settings
        ports = {"cql": settings.port, "storage": settings.storage_port}
        if settings.jmx_port is not None:
            ports["jmx"] = settings.jmx_port
        self._ports = settle_ports(self.directory, settings.address, ports)
        for folder in ("conf", "data", "tmp"):
            (self.directory / folder).mkdir(exist_ok=True)
        # Every JSON text is YAML too, so no YAML writer is needed.
        configuration = cassandra_yaml(settings, self.directory, self._ports["cql"], self._ports["storage"])
        (self.directory / "conf" / "cassandra.yaml").write_text(json.dumps(configuration, indent=1))
        (self.directory / "conf" / "logback.xml").write_text(_LOGBACK)
        (self.directory / "conf" / "logback-tools.xml").write_text(_LOGBACK_OF_TOOLS)
        return Launch(
            name=self.name,
            command=self._command(),
            directory=self.directory,
            address=settings.address,
            port=self._ports["cql"],
            ready_line="Startup complete",
            start_seconds=settings.start_seconds,
        )

    def _command(self) -> tuple[str, ...]:
        options = jvm_options(self.settings, self.directory, self._ports.get("jmx"))
        main = "org.apache.cassandra.service.CassandraDaemon"
        jars = self._jars()
        return (str(find_java().program), *options, *_agent(self.settings, jars), *_classpath(jars), main)

    def _jars(self) -> tuple[Path, ...]:
        return fetch_sets(RELEASES[self.settings.release])

    def _port(self, name: str) -> int:
        if name not in self._ports:
            raise ServiceError(f"cassandra in {self.directory} has no {name} port before it is started")
        return self._ports[name]


def cassandra_yaml(settings: CassandraSettings, directory: Path, port: int, storage_port: int) -> dict[str, object]:
    """The content of cassandra.yaml: CDC on, everything below `directory`, small buffers and few threads."""
    seeds = ",".join(f"{seed}:{storage_port}" for seed in settings.seeds or (settings.address,))
    data = directory / "data"
    placed: dict[str, object] = {
        "cluster_name": settings.cluster_name,
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        "seed_provider": [
            {"class_name": "org.apache.cassandra.locator.SimpleSeedProvider", "parameters": [{"seeds": seeds}]}
        ],
        "listen_address": settings.address,
        "rpc_address": settings.address,
        "storage_port": storage_port,
        "native_transport_port": port,
        "num_tokens": len(settings.tokens) or settings.num_tokens,
        "data_file_directories": [str(data / "data")],
        "commitlog_directory": str(data / "commitlog"),
        "cdc_raw_directory": str(data / "cdc_raw"),
        "saved_caches_directory": str(data / "saved_caches"),
        "hints_directory": str(data / "hints"),
        "commitlog_segment_size": f"{settings.segment_mib}MiB",
        "commitlog_sync_period": f"{settings.sync_period_ms}ms",
        "cdc_total_space": f"{settings.cdc_total_mib}MiB",
    }
    if settings.tokens:
        placed["initial_token"] = ",".join(map(str, settings.tokens))
    configuration = {**_FIXED, **placed}
    return {**(_before_units(configuration) if settings.release == "4.0" else configuration), **settings.yaml}


def jvm_options(settings: CassandraSettings, directory: Path, jmx_port: int | None) -> tuple[str, ...]:
    """The JVM's options for a node that starts in a few seconds.

    Left out against Cassandra's own conf/: the jamm agent (`row_overhead_size` is what it would measure), G1, the
    second compiler, and waits for other nodes' gossip.
    """
    conf, temporary = directory / "conf", directory / "tmp"
    jmx = () if jmx_port is None else (f"-Dcassandra.jmx.local.port={jmx_port}", "-Djava.rmi.server.hostname=127.0.0.1")
    return (
        f"-Xms{min(128, settings.heap_mib)}m",
        f"-Xmx{settings.heap_mib}m",
        "-Xss512k",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:MaxDirectMemorySize=256m",
        "-XX:+ExitOnOutOfMemoryError",
        *_OPENED,
        f"-Dcassandra.config={(conf / 'cassandra.yaml').as_uri()}",
        f"-Dlogback.configurationFile={(conf / 'logback.xml').as_uri()}",
        f"-Dcassandra.storagedir={directory / 'data'}",
        f"-Dcassandra.logdir={directory}",
        f"-Djava.io.tmpdir={temporary}",
        f"-Djna.tmpdir={temporary}",
        f"-Dcassandra.ring_delay_ms={settings.ring_delay_ms}",
        *_PROPERTIES,
        *jmx,
        *settings.jvm,
    )


def _classpath(jars: Iterable[Path]) -> tuple[str, str]:
    return ("-cp", ":".join(map(str, jars)))


def _agent(settings: CassandraSettings, jars: Iterable[Path]) -> tuple[str, ...]:
    """4.x measures its memtables by jamm, which finds no other way in on Java 17 than as an agent."""
    if not settings.release.startswith("4."):
        return ()
    return tuple(f"-javaagent:{jar}" for jar in jars if jar.name.startswith("jamm-"))


def _before_units(configuration: Mapping[str, object]) -> dict[str, object]:
    """The configuration as 4.0 names it: units stand in the names, values are numbers (CASSANDRA-15234)."""
    renamed: dict[str, object] = {}
    for name, value in configuration.items():
        match = re.fullmatch(r"(\d+)(MiB|ms)", str(value))
        if match is None:
            renamed[name] = value
        else:
            unit = "_in_mb" if match[2] == "MiB" else "_ms" if name.startswith("cdc") else "_in_ms"
            renamed[name + unit] = int(match[1])
    return renamed


# Release -> set of jars.
RELEASES: Final[Mapping[str, str]] = {
    "4.0": "cassandra-4.0",
    "4.1": "cassandra-4.1",
    "5.0": "cassandra",
    "6.0": "cassandra-6.0",
}

_FIXED: dict[str, object] = {
    "start_native_transport": True,
    "endpoint_snitch": "SimpleSnitch",
    "auto_bootstrap": False,
    "auto_snapshot": False,
    "incremental_backups": False,
    "disk_failure_policy": "stop",
    "commit_failure_policy": "stop",
    "commitlog_sync": "periodic",
    "commitlog_total_space": "64MiB",
    "cdc_enabled": True,
    "cdc_free_space_check_interval": "250ms",
    "concurrent_reads": 4,
    "concurrent_writes": 4,
    "concurrent_counter_writes": 2,
    "concurrent_compactors": 1,
    "memtable_flush_writers": 1,
    "memtable_heap_space": "64MiB",
    "memtable_offheap_space": "64MiB",
    "file_cache_size": "32MiB",
    "key_cache_size": "4MiB",
    "counter_cache_size": "0MiB",
    "native_transport_max_frame_size": "16MiB",
}

_PROPERTIES = (
    "-Djava.security.manager=allow",  # Cassandra sets one of its own, which Java 18 and newer refuse without this
    "-Djdk.attach.allowAttachSelf=true",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.useCacheForAllThreads=true",
    "-Dcassandra-foreground=yes",
    "-Djava.awt.headless=true",
    "-Djava.net.preferIPv4Stack=true",
    "-Dcassandra.skip_wait_for_gossip_to_settle=0",
    "-Dcassandra.shutdown_announce_in_ms=100",
    "-Dcassandra.superuser_setup_delay_ms=0",
    "-Dcassandra.memtable.row_overhead_size=181",
    "-Dcassandra.max_local_pause_in_ms=60000",
    "-Dcassandra.consistent.rangemovement=false",
)

# Cassandra's conf/jvm17-server.options, without the compiler's packages, which only its build uses.
_OPENED = tuple(
    f"--add-{kind}={package}=ALL-UNNAMED"
    for kind, packages in {
        "exports": (
            "java.base/jdk.internal.misc",
            "java.base/jdk.internal.ref",
            "java.base/jdk.internal.util",
            "java.base/java.lang.ref",
            "java.management.rmi/com.sun.jmx.remote.internal.rmi",
            "java.rmi/sun.rmi.registry",
            "java.rmi/sun.rmi.server",
            "java.sql/java.sql",
            "jdk.attach/sun.tools.attach",
            "jdk.unsupported/sun.misc",
        ),
        "opens": (
            "java.base/java.io",
            "java.base/java.lang",
            "java.base/java.lang.module",
            "java.base/java.lang.reflect",
            "java.base/java.nio",
            "java.base/java.util",
            "java.base/java.util.concurrent",
            "java.base/java.util.concurrent.atomic",
            "java.base/jdk.internal.loader",
            "java.base/jdk.internal.math",
            "java.base/jdk.internal.module",
            "java.base/jdk.internal.ref",
            "java.base/jdk.internal.reflect",
            "java.base/jdk.internal.util.jar",
            "java.base/sun.nio.ch",
            "jdk.management/com.sun.management.internal",
        ),
    }.items()
    for package in packages
)

_LOGBACK = """\
<configuration>
 <statusListener class="ch.qos.logback.core.status.NopStatusListener"/>
 <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
  <encoder><pattern>%-5level [%thread] %date{ISO8601} %F:%L - %msg%n</pattern></encoder>
 </appender>
 <root level="INFO"><appender-ref ref="OUT"/></root>
</configuration>
"""

_LOGBACK_OF_TOOLS = """\
<configuration>
 <statusListener class="ch.qos.logback.core.status.NopStatusListener"/>
 <root level="OFF"/>
</configuration>
"""
