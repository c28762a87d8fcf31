"""The sections of the Spark job and of what goes with it: snapshots, lineage, traces."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from tailrace_common.properties.passthrough import JavaKafkaSettings, SparkSettings, flatten
from tailrace_common.secrets import carries_user
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
        "is written in parts. Unset: an eighth of the driver's memory, 512 MiB at most",
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
        if Way.HASH in treatments and not self.hash_key:  # by an empty one anybody can hash guesses
            raise ValueError("columns that are hashed need hash_key, or hash_key_file")
        return self


class ReadLimits(Section):
    """How tables of Cassandra are read by token ranges."""

    datacenter: str | None = Field(
        default=None,
        examples=["dc1"],
        description="Datacenter to read in. Unset: the first contact point's",
    )
    consistency: Literal["ONE", "TWO", "THREE", "QUORUM", "LOCAL_ONE", "LOCAL_QUORUM", "EACH_QUORUM", "ALL"] = Field(
        default="LOCAL_QUORUM", description="Consistency level"
    )
    page_rows: Positive = Field(default=5000, description="Most rows of a page")
    page_mebibytes: Positive = Field(default=8, description="Most bytes of a page, as far as earlier pages tell")
    range_mebibytes: Positive = Field(default=64, description="Estimated bytes of a token range that is read as one")
    ranges: Positive = Field(default=32, description="Least number of token ranges of the whole ring")
    concurrent_ranges: Positive | None = Field(
        default=None, examples=[4], description="Most ranges read at once. Unset: by Spark's cores"
    )
    requests_per_node: Positive | None = Field(
        default=None, examples=[2], description="Most requests under way at a node at once"
    )
    rows_per_second: Annotated[float, Field(gt=0)] | None = Field(
        default=None, examples=[20000], description="Most rows a second, of all tasks together"
    )
    attempts: Positive = Field(default=8, description="How often a page is asked for before the task fails")
    retry_seconds: Seconds = Field(default=0.25, description="Wait before the second attempt; doubled each time")
    allow_masked_values: bool = Field(
        default=False,
        description="Take masked values for data where Cassandra masks columns for this role. false: refuse them",
    )


class SnapshotLimits(ReadLimits):
    """How a stream reads tables as they are now, which `stream.snapshot` and `tailrace snapshot` ask for."""


class LineageSettings(Section):
    """Events of OpenLineage about streams. Needs tailrace[openlineage]. docs/lineage.md"""

    transport: Literal["none", "http", "file", "console"] = Field(
        default="none",
        description='How events are sent: "http", to `url`; "file", a line of JSON each, to `file`; "console", to the '
        'log; "none": there are none',
    )
    url: str | None = Field(
        default=None, examples=["http://127.0.0.1:5000"], description="Server that takes events, such as Marquez"
    )
    endpoint: str = Field(default="api/v1/lineage", description="Path of that server")
    api_key: SecretStr | None = Field(default=None, examples=["..."], description="Bearer token for that server")
    api_key_file: Path | None = Field(
        default=None, examples=["/run/secrets/lineage-key"], description="File that holds it, instead of `api_key`"
    )
    file: Path | None = Field(
        default=None, examples=["/var/lib/tailrace/lineage.jsonl"], description="File that events are appended to"
    )
    namespace: str = Field(default="tailrace", description="Namespace of the streams, which are jobs there")
    cassandra: str | None = Field(
        default=None,
        examples=["cassandra1.example.org:9042"],
        description="HOST:PORT that names the source's cluster. Unset: the first of cluster.contact_points, if these "
        "are set; else Kafka's topics alone are inputs",
    )
    running_seconds: Seconds = Field(
        default=60, description="The least time between two events of a stream that runs, unless it meets a new table"
    )

    @model_validator(mode="after")
    def _check_transport(self) -> Self:
        if self.transport == "http":
            parts = urlsplit(self.url or "")
            if parts.scheme not in {"http", "https"} or not parts.hostname:
                raise ValueError('transport = "http" needs url, such as http://127.0.0.1:5000')
            if carries_user(self.url or ""):
                raise ValueError("url must be without user and password: give api_key_file")
        if self.transport == "file" and self.file is None:
            raise ValueError('transport = "file" needs file')
        return self


class TracesSettings(Section):
    """Spans of changes from the log to the sinks, sent by OTLP over HTTP. Needs tailrace[otel]. docs/traces.md"""

    endpoint: str | None = Field(
        default=None,
        examples=["http://127.0.0.1:4318/v1/traces"],
        description="URL that takes spans as protobuf. Unset: nothing is traced, and records have no header. A token "
        "goes into the variable OTEL_EXPORTER_OTLP_HEADERS, not here",
    )
    sample_ratio: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.01, description="Share of an agent's transactions that are traced. Streams follow those"
    )

    @field_validator("endpoint")
    @classmethod
    def _check_endpoint(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("must be a URL such as http://127.0.0.1:4318/v1/traces")
        if parts.username is not None or parts.password is not None:
            raise ValueError("must have no user and no password: set OTEL_EXPORTER_OTLP_HEADERS")
        return value
