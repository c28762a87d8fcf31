"""What a cluster's load takes in all: agents, brokers with their topics, and a stream for each store.

It only computes, from the costs of `sizing` and from memory that benchmarks measured (docs/sizing.md).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from tailrace_schemas.errors import SettingsError
from tailrace_spark.sizing import COSTS, Load, Size, size

STORES: Final = {name.replace("`", "").partition(",")[0]: name for name in COSTS}
"""The stores whose costs were measured, and their names in `COSTS`."""
AGENT_MIB: Final = 110
PYTHON_MIB: Final = 250
"""Of a Python process that holds a part of a batch: measured for the driver, assumed for each core of an executor."""
JAVA_MIB: Final = 1_024
"""Spark's default for a driver and for an executor."""
_CORES_PER_EXECUTOR: Final = 4
_DAY: Final = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Writes a second by clients, all tables together; copies of each row; nodes and tables.

    `retention_days`: how long Kafka keeps a record. `default_partitions` are those of a table's topic, and
    `internal_topics` and `internal_partitions` those of all other topics.
    """

    writes: float
    replication_factor: int
    nodes: int
    tables: int
    brokers: int
    record_bytes: int
    retention_days: float
    batch_seconds: float
    default_partitions: int
    internal_topics: int
    internal_partitions: int


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of process: how many, what each takes, and why. Memory in MiB, storage in GB; None: not reckoned."""

    part: str
    number: int
    cores: float | None = None
    memory_mib: int | None = None
    partitions: int | None = None
    storage_gb: int | None = None
    why: str = ""


def parts(cluster: Cluster, stores: Sequence[str]) -> list[Part]:
    """What the cluster's load takes. Raises SettingsError where batches are too short, or a store has no costs."""
    unknown = [store for store in stores if store not in STORES]
    if unknown:
        raise SettingsError(f"store {unknown[0]!r}: costs were measured for {', '.join(STORES)}. Name one of these")
    if cluster.nodes < cluster.replication_factor:
        raise SettingsError(
            f"{cluster.nodes} nodes cannot hold {cluster.replication_factor} copies: give more --nodes, or a lower --rf"
        )
    records = cluster.writes * cluster.replication_factor
    copies = min(3, cluster.brokers)
    load = Load(records, cluster.record_bytes, replication=copies, batch_seconds=cluster.batch_seconds)
    sizes = {store: size(load, COSTS[STORES[store]]) for store in stores}
    return [
        _agents(cluster, load),
        _brokers(cluster, load),
        _topics(cluster, sizes.values()),
        *(process for store, result in sizes.items() for process in _stream(store, result)),
    ]


def _agents(cluster: Cluster, load: Load) -> Part:
    cores = load.records * load.agent / 1e6 / load.busy / cluster.nodes
    why = f"one beside each node; {load.records / cluster.nodes:,.0f} records a second each"
    return Part("agent", cluster.nodes, round(cores, 2), AGENT_MIB, why=why)


def _brokers(cluster: Cluster, load: Load) -> Part:
    written = load.records * load.record_bytes * load.replication
    cores = load.records * load.broker / 1e6 / load.busy / cluster.brokers
    stored = written * cluster.retention_days * _DAY / cluster.brokers / 1e9
    why = f"{written / 1e6:,.1f} MB/s written in all, {load.replication} copies; kept {cluster.retention_days:g} days"
    return Part("broker", cluster.brokers, round(cores, 2), storage_gb=ceil(stored), why=why)


def _topics(cluster: Cluster, sizes: Collection[Size]) -> Part:
    needed = max((result.partitions for result in sizes), default=0)
    of_table = max(cluster.default_partitions, ceil(needed / cluster.tables))
    partitions = cluster.tables * of_table + cluster.internal_partitions
    why = f"{of_table} partitions for each table (topics.partitions), {cluster.internal_partitions} of our own topics"
    return Part("topic", cluster.tables + cluster.internal_topics, partitions=partitions, why=why)


def _stream(store: str, result: Size) -> list[Part]:
    cores = ceil(result.executor_cores / result.streams)
    executors = ceil(cores / _CORES_PER_EXECUTOR)
    per_executor = min(cores, _CORES_PER_EXECUTOR)
    memory = JAVA_MIB + per_executor * PYTHON_MIB
    processes = [
        Part(
            f"{store}: driver",
            result.streams,
            1,
            JAVA_MIB + PYTHON_MIB,
            why=f"a stream each; {100 * result.driver_share:.0f} % of its time without executors",
        ),
        Part(
            f"{store}: executor",
            result.streams * executors,
            per_executor,
            memory,
            why=f"{result.executor_cores} cores in all; memory is Spark's default and {PYTHON_MIB} MiB a core",
        ),
    ]
    if result.store_cores:
        processes.append(
            Part(f"{store}: server", 1, result.store_cores, why="cores for writing, of all servers together")
        )
    return processes


__all__ = ["AGENT_MIB", "JAVA_MIB", "PYTHON_MIB", "STORES", "Cluster", "Part", "parts"]
