"""Every type of sink there is, by name, and the sink that a [sink.NAME] names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tailrace_common.properties.passthrough import Scalar
from tailrace_common.settings import Settings, SinkSettings
from tailrace_schemas.errors import SettingsError
from tailrace_spark.sinks.cassandra.sink_type import CASSANDRA, LOG_TABLES
from tailrace_spark.sinks.console.sink_type import CONSOLE
from tailrace_spark.sinks.delta.sink_type import DELTA
from tailrace_spark.sinks.files.sink_type import FILES
from tailrace_spark.sinks.http.sink_type import HTTP
from tailrace_spark.sinks.iceberg.sink_type import ICEBERG
from tailrace_spark.sinks.kafka.sink_type import KAFKA
from tailrace_spark.sinks.letters import LOGGED, Letters, LetterTopic
from tailrace_spark.sinks.opensearch.sink_type import OPENSEARCH
from tailrace_spark.sinks.protocol import ReachableSink
from tailrace_spark.sinks.rabbitmq.sink_type import RABBITMQ
from tailrace_spark.sinks.sink_type import SinkType, Surroundings
from tailrace_spark.sinks.sql.sink_type import SQL

SINKS: Final[Mapping[str, SinkType]] = {
    kind.name: kind
    for kind in (SQL, LOG_TABLES, CASSANDRA, KAFKA, HTTP, RABBITMQ, FILES, DELTA, ICEBERG, OPENSEARCH, CONSOLE)
}
"""In the order in which people see them. A further sink is a package with a `sink_type`, and an entry here."""

_NO_KAFKA: Final[Mapping[str, Scalar]] = {}


def open_sink(
    name: str,
    settings: SinkSettings,
    prefix: str,
    ring_delay: float = 0.0,
    kafka: Mapping[str, Scalar] = _NO_KAFKA,
    letters: Letters = LOGGED,
) -> ReachableSink:
    """The sink of [sink.NAME], for topics of a prefix; it connects when it is first used.

    `ring_delay`: [generations] ring_delay_seconds, within which all hosts know of what one of them does. `kafka`: the
    stream's own Kafka, for sinks that write to it too. `letters`: where its dead letters go.
    Raises SettingsError, also where a package that this type of sink needs is not installed.
    """
    kind = SINKS[settings.type]
    missing = kind.missing()
    if missing:
        raise SettingsError(
            f'sink.{name}: type = "{kind.name}" needs {", ".join(missing)}, not installed: {kind.install}'
        )
    return kind.open(name, settings, Surroundings(prefix, ring_delay, kafka, letters))


def sink_of(settings: Settings, name: str) -> ReachableSink:
    """The sink of [sink.NAME] of these settings, with all that it has to know of them. Raises as `open_sink` does."""
    delay, letters = settings.generations.ring_delay_seconds, LetterTopic.of(settings, name)
    return open_sink(name, settings.sink[name], settings.topics.prefix, delay, settings.kafka.reveal(), letters)


def setting_of(name: str, settings: SinkSettings) -> str:
    """The name of the setting to look at when the sink of [sink.NAME] cannot be reached."""
    return ".".join(filter(None, ("sink", name, SINKS[settings.type].where)))
