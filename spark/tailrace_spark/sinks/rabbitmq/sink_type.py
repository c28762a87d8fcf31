"""The type `rabbitmq`: changes as messages."""

from __future__ import annotations

from typing import Final

from tailrace_spark.sinks.protocol import ReachableSink
from tailrace_spark.sinks.rabbitmq.settings import RabbitmqSinkSettings
from tailrace_spark.sinks.sink_type import Kind, SinkType, Surroundings


def _open(name: str, settings: RabbitmqSinkSettings, around: Surroundings) -> ReachableSink:
    from tailrace_spark.sinks.changelog.sink import ChangeLogSink, OpenedShares
    from tailrace_spark.sinks.images.planning import images_for
    from tailrace_spark.sinks.rabbitmq.outlet import RabbitmqOpener

    images, made_of = images_for(name, settings, around)
    opener = RabbitmqOpener(name, settings, around.letters)
    return ChangeLogSink(opener.open(), images, OpenedShares(opener), made_of)


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
