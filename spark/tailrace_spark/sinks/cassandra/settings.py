"""The settings of sinks that write into a Cassandra or ScyllaDB cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from tailrace_common.sections.cassandra import CassandraSettings
from tailrace_common.sections.section import DAY_SECONDS, Positive
from tailrace_common.sections.sink import Dataset, SinkSettings, SourceTable
from tailrace_common.sections.template import fit, require_template
from tailrace_spark.sinks.cassandra.log.layout import log_name

_LONGEST_TTL: Final = 630_720_000  # Attributes.MAX_TTL, 20 years
_LONGEST_KEYSPACE: Final = 48


def keyspace_name(template: str, keyspace: str) -> str:
    """The keyspace that a source's keyspace is written into."""
    return fit(template.format(keyspace=keyspace), _LONGEST_KEYSPACE)


class CassandraTargetSettings(CassandraSettings, SinkSettings):
    """What every such sink has."""

    keyspace: str = Field(
        default="{keyspace}",
        description="Keyspace of what is written of a source table, which must exist. Unset: one of the source's name",
    )
    consistency: Literal["ONE", "QUORUM", "LOCAL_ONE", "LOCAL_QUORUM", "EACH_QUORUM", "ALL"] = Field(
        default="LOCAL_QUORUM", description="Consistency level of the writes"
    )
    datacenter: str | None = Field(
        default=None,
        examples=["dc1"],
        description="Datacenter whose nodes are written to. Unset: that of the first contact point",
    )
    concurrency: Positive = Field(default=32, description="Most writes under way at once")

    @field_validator("keyspace")
    @classmethod
    def _check_keyspace(cls, value: str) -> str:
        return require_template(value, "keyspace")

    def dataset(self, table: SourceTable) -> Dataset:
        """The table of the other cluster, of which the first contact point is the name."""
        return Dataset(f"cassandra://{self.location}", f"{keyspace_name(self.keyspace, table.keyspace)}.{table.name}")


class LogTablesSinkSettings(CassandraTargetSettings):
    """Tables like ScyllaDB's CDC log in a Cassandra or ScyllaDB cluster: each change a row, docs/log-tables.md."""

    type: Literal["log-tables"] = Field(default="log-tables", description="What kind of sink this is")
    ttl_seconds: Annotated[int, Field(ge=0, le=_LONGEST_TTL)] = Field(
        default=DAY_SECONDS, description="Log rows vanish so long after they were written; 0: never"
    )
    dropped_columns: Literal["drop", "keep"] = Field(
        default="drop",
        description='What becomes of a log column whose table has dropped the column: "drop", as ScyllaDB does it, or '
        '"keep" the column with its values. ScyllaDB\'s client in Java cannot read a log that keeps a list',
    )
    streamed: Literal["write", "skip"] = Field(
        default="write",
        description="Data that nodes log once more when they join, leave or are repaired, as far as the log shows it. "
        'With "skip" it is left out: in most cases the log had it before (docs/log-tables.md)',
    )
    lateness_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=30,
        description="How late after its write time a replica may log a change that the watermark still covers. At "
        "least commitlog_sync_period plus the longest request plus the clocks' difference",
    )

    def dataset(self, table: SourceTable) -> Dataset:
        """The log table."""
        return super().dataset(replace(table, name=log_name(table.name)))


class CassandraSinkSettings(CassandraTargetSettings):
    """The source's tables in another Cassandra cluster, or under another keyspace, write times and TTLs included."""

    type: Literal["cassandra"] = Field(default="cassandra", description="What kind of sink this is")
    lists: Literal["refuse", "map"] = Field(
        default="refuse",
        description="Tables with lists that are not frozen: CQL cannot write their elements at their places. "
        'With "refuse" their changes are dead letters; with "map" such a list is a map by time UUID, in its order',
    )
    largest_mutation_kibibytes: Positive = Field(
        default=16_384,
        description="Larger changes are dead letters: set it to that cluster's max_mutation_size, which is half of "
        "its commitlog_segment_size. Some releases say of a larger one only that the write failed, and would be asked "
        "again for ever",
    )

    @model_validator(mode="after")
    def _check_protocol(self) -> Self:
        if self.protocol_version == 3:
            raise ValueError("protocol_version must be 4 at least: with 3 no statement can leave columns as they are")
        return self
