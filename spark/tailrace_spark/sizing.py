"""What streams that write by tasks take: executors, Kafka partitions, the driver, brokers and the store.

It only computes, from costs that benchmarks measured: docs/sizing.md says which, and has a table of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from math import ceil
from types import MappingProxyType
from typing import Final

from tailrace_schemas.errors import SettingsError

# Kafka partitions for each core: tokens spread records evenly, but a batch ends with its slowest partition.
_PARTITIONS_PER_CORE: Final = 2
_MOST_STREAMS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Costs:
    """What one store costs, in CPU: `record` and `store` in microseconds a record, all others in milliseconds.

    `record` is that of executors (Python and Java), `store` that of the store's servers, for each record. An executor
    has `partition` for each Kafka partition of a batch. The driver has `driver_batch` for each batch and
    `driver_partition` for each Kafka partition in it; meanwhile executors have nothing to do.
    """

    record: float
    store: float
    partition: float
    driver_batch: float
    driver_partition: float


@dataclass(frozen=True, slots=True)
class Load:
    """Records a second in Kafka, their bytes each, copies on other brokers included in `replication`.

    A batch has what comes in `batch_seconds`. `busy` is the share of a core that may be used: the rest is for peaks,
    and for catching up. `broker` and `agent` are microseconds of CPU a record.
    """

    records: float
    record_bytes: int = 250
    replication: int = 3
    batch_seconds: float = 10.0
    busy: float = 0.7
    broker: float = 5.6
    agent: float = 9.4


@dataclass(frozen=True, slots=True)
class Size:
    """What a load takes, of all streams together.

    `driver_share` is the part of a core that each stream's driver uses. `written` and `read` are Kafka's bytes a
    second: what brokers take in, copies included, and what streams fetch.
    """

    streams: int
    executor_cores: int
    partitions: int
    driver_share: float
    store_cores: int
    broker_cores: int
    agent_cores: int
    written: float
    read: float


COSTS: Final[Mapping[str, Costs]] = MappingProxyType(
    {
        "`postgresql`": Costs(record=61.8, store=13.6, partition=8.6, driver_batch=150, driver_partition=2),
        "`delta`, history": Costs(record=51.6, store=0, partition=10, driver_batch=150, driver_partition=2),
        "`cassandra`": Costs(record=122.5, store=78.5, partition=0, driver_batch=150, driver_partition=2),
    }
)
"""By sink, as docs/sizing.md calls it: figures of docs/performance.md."""


def size(load: Load, costs: Costs) -> Size:
    """The least that a load takes: as few streams as their drivers allow, and as few cores as those need.

    Raises SettingsError where no number of streams suffices: batches are too short for what each of them costs.
    """
    for streams in range(1, _MOST_STREAMS + 1):
        cores = _cores(replace(load, records=load.records / streams), costs)
        if cores is not None:
            partitions = _PARTITIONS_PER_CORE * cores
            driver = (costs.driver_batch + costs.driver_partition * partitions) / 1e3
            return Size(
                streams,
                streams * cores,
                streams * partitions,
                driver / load.batch_seconds,
                _whole(load, costs.store),
                _whole(load, load.broker),
                _whole(load, load.agent),
                load.records * load.record_bytes * load.replication,
                load.records * load.record_bytes,
            )
    raise SettingsError(
        f"batches of {load.batch_seconds:g} s are too short: the driver and the Kafka partitions take that long "
        "without any record. Take longer batches"
    )


def _cores(load: Load, costs: Costs) -> int | None:
    """The executors' cores of one stream; None where more cores only cost the driver more.

    Cores have a batch's time without the driver's to process its records, and what its partitions cost. Each
    core brings partitions, so the driver's time grows with them.
    """
    work = load.records * load.batch_seconds * costs.record / 1e6
    usable = load.busy * load.batch_seconds - costs.driver_batch / 1e3
    per_core = _PARTITIONS_PER_CORE * costs.driver_partition / 1e3
    available = usable - _PARTITIONS_PER_CORE * costs.partition / 1e3
    if available <= 0:
        return None
    for cores in count(max(1, ceil(work / available))):
        seconds = available - cores * per_core
        if seconds <= 0:
            return None
        if cores * seconds >= work:
            return cores
    raise AssertionError("count does not end")


def _whole(load: Load, cost: float) -> int:
    """The cores for so many microseconds a record."""
    return ceil(load.records * cost / 1e6 / load.busy)
