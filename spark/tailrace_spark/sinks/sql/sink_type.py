"""The type `sql`: tables of a SQL database that follow the source."""

from __future__ import annotations

from typing import Final

from tailrace_spark.sinks.protocol import ReachableSink
from tailrace_spark.sinks.sink_type import Kind, SinkType, Surroundings
from tailrace_spark.sinks.sql.settings import SqlSinkSettings


def _open(name: str, settings: SqlSinkSettings, around: Surroundings) -> ReachableSink:  # noqa: ARG001 - an Opener's
    from tailrace_spark.sinks.sql.sink import SqlSink

    return SqlSink(
        settings.url.get_secret_value(),
        settings.table,
        ring_delay=around.ring_delay,
        merge_horizon=settings.merge_horizon_seconds or None,
        on_drop=settings.on_drop,
        letters=around.letters,
    )


SQL: Final = SinkType(
    name="sql",
    settings=SqlSinkSettings,
    kinds=(Kind.MERGING,),
    guarantee="A table reads as SELECT reads the source, each Kafka partition up to one place, whatever comes late, "
    "again or in another order.",
    extra="spark",
    packages=("sqlalchemy",),
    drivers=("psycopg", "pymysql"),
    document="docs/sinks/sql.md",
    open=_open,
    where="url",
)
