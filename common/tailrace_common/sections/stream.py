"""The section of the settings for the Spark job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from tailrace_common.properties.passthrough import JavaKafkaSettings, SparkSettings, flatten
from tailrace_common.sections.section import EXISTING_ROWS, ListenAddress, PortOrNone, Positive, Seconds, Section
from tailrace_schemas.masks import Rule, Way

METRICS_PORT: Final = 8084


class StreamSettings(Section):
    """The Spark job from the topics to one sink."""

    sink: str | None = Field(
        default=None, examples=["local"], description="Name of the [sink.NAME] to write. Unset: the only one there is"
    )
    topics: str | None = Field(
        default=None,
        examples=["tailrace\\.shop\\..*"],
        description="Java regular expression of topics to read. Unset: every table's topic under the prefix",
    )
    checkpoint: str = Field(
        default="tailrace-checkpoint-{sink}",
        description="Directory or URL of Spark's checkpoint, which keeps the place in the topics. {sink} is the sink's "
        "name: each sink needs a checkpoint of its own. A relative one is below the working directory, as all paths",
    )
    starting_offsets: Literal["earliest", "latest"] = Field(
        default="earliest", description='Where to start without a checkpoint: "earliest" or "latest"'
    )
    snapshot: Literal["never", "initial", "only"] = Field(
        default=EXISTING_ROWS,
        description='Rows that tables have already: "initial" copies them once, while the topics are followed; "only" '
        'copies them and ends; "never" follows the topics alone. A stream that began without them copies none until '
        '"initial" is written here. Reads by [cluster] and [snapshot]. docs/snapshots.md',
    )
    max_offsets_per_trigger: Positive = Field(default=100_000, description="Most records of one micro-batch")
    max_bytes_per_part: Annotated[int, Field(ge=1 << 20, le=1 << 30)] | None = Field(
        default=None,
        examples=[134217728],
        description="Most bytes of messages that Spark's driver collects at once, 1 MiB to 1 GiB; a larger micro-batch "
        "is written in parts. Unset: an eighth of the driver's memory",
    )
    execution: Literal["auto", "driver", "executors"] = Field(
        default="auto",
        description='Who merges and writes a micro-batch: "executors", in a task for each Kafka partition; '
        '"driver", quicker for small ones; "auto" chooses by size. docs/reference/merging.md says which sinks can',
    )
    tasks_per_core: Annotated[int, Field(ge=1)] = Field(
        default=1,
        description="At most so many tasks of a batch for each core: each takes several Kafka partitions one after "
        "another. More cost more, and leave no core idle where partitions differ much",
    )
    trigger_seconds: Annotated[float, Field(ge=0)] = Field(
        default=1.0, description="A micro-batch starts this often; 0: as soon as the one before is done"
    )
    once_wait_seconds: Seconds = Field(
        default=60,
        description="How long `stream --once` waits for Kafka, the generations or the sink before it fails. Without "
        "--once the stream waits on",
    )
    one_copy_seconds: Seconds | None = Field(
        default=None,
        examples=[11400],
        description="Leave out copies of a change that come within so long after its first: replicas publish one each. "
        "Unset: all are passed on, since sinks merge them",
    )
    accept_early: bool = Field(
        default=False, description="Take changes that agents published before Cassandra had flushed them (agent.early)"
    )
    where: dict[str, str] = Field(
        default={},
        description='Which changes sinks are given, by "keyspace.table" with * and ?: a condition over '
        "the columns of the primary key and `change`. The first pattern that matches counts. Not for log tables. "
        "docs/shaping.md",
    )
    columns: dict[str, str] = Field(
        default={},
        description='What sinks see of columns, by "keyspace.table.column" with * and ?: "drop", "mask" (***), "hash" '
        '(HMAC-SHA-256 by hash_key) or "rename NAME"; the first that matches holds. Not to be changed for a sink that '
        "has data. Not for log tables",
    )
    hash_key: SecretStr | None = Field(default=None, examples=["..."], description="Secret of hashed columns")
    hash_key_file: Path | None = Field(
        default=None, examples=["/run/secrets/hash-key"], description="File that holds it, instead of `hash_key`"
    )
    fail_on_data_loss: bool = Field(
        default=True,
        description="Stop a table of which Kafka deleted records before they were read, and a stream whose sink lost "
        "batches that it had. false: read on with the rest",
    )
    metrics_address: ListenAddress = Field(
        default="127.0.0.1", description="Host name or IP address that health and metrics are served on"
    )
    metrics_port: PortOrNone = Field(
        default=METRICS_PORT,
        description="Its port; 0: no endpoint. Where the default is taken, the stream runs without one, and says so",
    )
    spark: SparkSettings = Field(default=SparkSettings({}), description="Spark's own settings, passed through")
    kafka: JavaKafkaSettings = Field(
        default=JavaKafkaSettings({}), description="What Java's Kafka client, which Spark uses, needs beyond [kafka]"
    )

    @field_validator("where", "columns", mode="before")
    @classmethod
    def _flatten(cls, value: object) -> object:
        """TOML's bare shop.people.email is a table in a table."""
        return flatten(value) if isinstance(value, Mapping) else value

    @field_validator("where")
    @classmethod
    def _check_where(cls, value: dict[str, str]) -> dict[str, str]:
        for pattern, condition in value.items():
            if pattern.count(".") != 1 or not all(pattern.split(".")):
                raise ValueError(f"{pattern}: must be keyspace.table, each with * and ? for any characters")
            if not condition.strip():
                raise ValueError(f"{pattern}: a condition is missing")
        return value

    @property
    def chooses_snapshot(self) -> bool:
        """Whether the settings say what `snapshot` is, rather than its default."""
        return "snapshot" in self.model_fields_set

    def checkpoint_of(self, sink: str) -> str:
        """The checkpoint of the sink of this name."""
        return self.checkpoint.replace("{sink}", sink)

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        treatments = {Rule.parse(pattern, text).way for pattern, text in self.columns.items()}
        if Way.HASH in treatments and self.hash_key is None:
            raise ValueError("columns that are hashed need hash_key, or hash_key_file")
        return self
