"""The type `rabbitmq`: changes as messages."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tailrace_spark.sinks.protocol import ReachableSink
from tailrace_spark.sinks.rabbitmq.settings import RabbitmqSinkSettings
from tailrace_spark.sinks.sink_type import Kind, SinkType, Surroundings


def _open(name: str, settings: RabbitmqSinkSettings, around: Surroundings) -> ReachableSink:
    from tailrace_spark.sinks.changelog.dead_letter_file import DeadLetterFile
    from tailrace_spark.sinks.changelog.file_dead_letters import StoredDeadLettersSink
    from tailrace_spark.sinks.images.planning import images_for
    from tailrace_spark.sinks.rabbitmq.client import RabbitmqClient
    from tailrace_spark.sinks.rabbitmq.outlet import RabbitmqOpener, RabbitmqOutlet

    letters = DeadLetterFile(settings.dead_letters or Path(f"tailrace-dead-letters-{name}.jsonl"))
    outlet = RabbitmqOutlet(RabbitmqClient(name, settings), settings, letters)
    images = images_for(name, settings, around)
    return StoredDeadLettersSink(outlet, letters, images.store, RabbitmqOpener(name, settings), images.planner)


RABBITMQ: Final = SinkType(
    name="rabbitmq",
    settings=RabbitmqSinkSettings,
    kinds=(Kind.CHANGE_LOG,),
    guarantee="Every change is confirmed by RabbitMQ once or more, in order per key; one that comes again has the same "
    "message id.",
    extra="rabbitmq",
    packages=("amqp",),
    document="docs/sinks/rabbitmq.md",
    open=_open,
    where="url",
)
