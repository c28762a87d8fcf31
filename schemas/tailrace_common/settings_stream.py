"""The section of the settings for the Spark job."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tailrace_common.passthrough import JavaKafkaSettings, SparkSettings
from tailrace_common.settings_section import Port, Positive, Seconds, Section


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
        default="tailrace-checkpoint",
        description="Directory or URL of Spark's checkpoint; it keeps the place in the topics",
    )
    starting_offsets: Literal["earliest", "latest"] = Field(
        default="earliest", description='Where to start without a checkpoint: "earliest" or "latest"'
    )
    max_offsets_per_trigger: Positive = Field(default=100_000, description="Most records of one micro-batch")
    trigger_seconds: Annotated[float, Field(ge=0)] = Field(
        default=1.0, description="A micro-batch starts this often; 0: as soon as the one before is done"
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
    fail_on_data_loss: bool = Field(default=True, description="Stop when Kafka deleted records before they were read")
    metrics_address: str = Field(default="127.0.0.1", description="Address that the metrics are served on")
    metrics_port: Port | None = Field(default=None, examples=[8084], description="Its port. Unset: no metrics")
    spark: SparkSettings = Field(default=SparkSettings({}), description="Spark's own settings, passed through")
    kafka: JavaKafkaSettings = Field(
        default=JavaKafkaSettings({}), description="What Java's Kafka client, which Spark uses, needs beyond [kafka]"
    )
