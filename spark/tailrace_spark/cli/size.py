"""`tailrace size`: what a cluster's load takes, from costs that benchmarks measured."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Final

import typer

from tailrace_common.cli.console import on_terminal, print_rows, say
from tailrace_common.settings import TopicSettings
from tailrace_schemas.topics import Internal, internal_plan
from tailrace_spark.cluster_sizing import STORES, Cluster, parts

_HEADINGS: Final = {"memory_mib": "memory, MiB", "storage_gb": "storage, GB", "why": ""}


def size_of(
    writes: Annotated[float, typer.Option(min=0, metavar="N", help="Writes a second by clients, of all tables.")],
    nodes: Annotated[int, typer.Option(min=1, help="Nodes of the Cassandra cluster.")] = 3,
    replication_factor: Annotated[
        int, typer.Option("--rf", min=1, help="Copies of each row: Kafka gets a record from each replica.")
    ] = 3,
    tables: Annotated[int, typer.Option(min=1, help="Tables with cdc = true.")] = 1,
    stores: Annotated[
        list[str] | None,
        typer.Option("--store", metavar="NAME", help=f"Where streams write, repeatable: {', '.join(STORES)}."),
    ] = None,
    brokers: Annotated[int, typer.Option(min=1, help="Kafka's brokers.")] = 3,
    record_bytes: Annotated[int, typer.Option("--bytes", min=1, help="Bytes of a record in Kafka.")] = 250,
    retention_days: Annotated[float, typer.Option(min=0, help="Days that Kafka keeps a record.")] = 7,
    batch_seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of records in a stream's batch.")] = 10,
    always_json: Annotated[bool, typer.Option("--json", help="Print JSON lines on a terminal, too.")] = False,
) -> None:
    """Reckon what a load takes: cores and memory, topics, partitions and broker storage.

    A table on a terminal, JSON lines when piped. It connects to nothing. The costs are those of one machine
    (docs/sizing.md): measure yours before you buy. Each part's figures are for one of its number.

    Example: tailrace size --writes 20000 --nodes 6 --tables 12 --store postgresql
    """
    topics = TopicSettings()
    internal = [internal_plan(topics, topic) for topic in Internal]
    cluster = Cluster(
        writes=writes,
        replication_factor=replication_factor,
        nodes=nodes,
        tables=tables,
        brokers=brokers,
        record_bytes=record_bytes,
        retention_days=retention_days,
        batch_seconds=batch_seconds,
        default_partitions=topics.partitions,
        internal_topics=len(internal),
        internal_partitions=sum(plan.partitions for plan in internal),
    )
    rows = parts(cluster, stores or [])
    if on_terminal() and not always_json:
        records = writes * replication_factor
        say(f"{records:,.0f} records a second in Kafka: {writes:,g} writes, {replication_factor} copies each")
    print_rows(map(asdict, rows), headings=_HEADINGS, always_json=always_json)
