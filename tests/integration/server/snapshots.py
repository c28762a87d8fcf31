"""Servers whose subscriptions begin with snapshots, and how far these are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tailrace_common.kafka import TopicReader
from tailrace_schemas.topics import table_topic
from tests.integration.server.servers import ServerProcess, Site
from tests.integration.snapshot.following import Place
from tests.unit.spark.sinks.change_log_contract import place_of

# Pages small enough, and slow enough, that a worker is killed in the middle.
_SLOW = {"consistency": "ONE", "ranges": 32, "page_rows": 5, "concurrent_ranges": 1, "rows_per_second": 40}
SECONDS = 900  # of a machine that has more to do


def site_of(
    place: Place,
    directory: Path,
    *,
    url: str | None = None,
    share_reading: bool = False,
    **snapshot: object,
) -> Site:
    """For the place's cluster, with a meta database of its own unless a URL names one."""
    sections = place.sections("unused")
    more = {"cluster": sections["cluster"], "tables": sections["tables"], "snapshot": {**_SLOW, **snapshot}}
    url = url or f"sqlite:///{directory / 'meta.db'}"
    more_of_server = {"snapshot": "initial", "share_reading": share_reading}
    return Site(directory, place.kafka, place.prefix, url, more, **more_of_server)


def tables(site: Site, name: str) -> list[dict[str, Any]]:
    """How far the snapshots of a subscription are."""
    with site.operations() as operations:
        return list(operations.details(name)["snapshots"])


def places_of(records: Iterable[Mapping[str, Any]]) -> set[tuple[str, int, int]]:
    """Where changes of Kafka's sink come from."""
    return {place_of(record) for record in records}


def published(place: Place, name: str) -> set[tuple[str, int, int]]:
    """All that a read_committed reader finds in a table's topic."""
    topic = table_topic(place.prefix, place.keyspace, name, place.table(name).id)
    with TopicReader({"bootstrap.servers": place.kafka.bootstrap}, topic, beginning=True) as reader:
        return {(topic, partition, record.offset) for partition, record in reader.read_to_end()}


def until(site: Site, server: ServerProcess, name: str, met: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Wait for the progress of the one table's snapshot."""
    server.until(lambda: any(met(table) for table in tables(site, name)), SECONDS)
    return tables(site, name)[0]
