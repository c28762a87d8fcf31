"""The type `console`: changes on stdout."""

from __future__ import annotations

import sys
from typing import Final

from tailrace_common.cli.console import on_terminal
from tailrace_spark.sinks.console.settings import ConsoleSinkSettings
from tailrace_spark.sinks.protocol import ReachableSink
from tailrace_spark.sinks.sink_type import Kind, SinkType, Surroundings


def _open(name: str, settings: ConsoleSinkSettings, around: Surroundings) -> ReachableSink:
    from tailrace_spark.sinks.changelog.sink import ChangeLogSink
    from tailrace_spark.sinks.console.outlet import ConsoleOutlet
    from tailrace_spark.sinks.images.planning import images_for

    tables = on_terminal() if settings.format == "auto" else settings.format == "table"
    outlet = ConsoleOutlet(sys.stdout, around.letters, tables=tables)
    images, _ = images_for(name, settings, around)
    return ChangeLogSink(outlet, images)


CONSOLE: Final = SinkType(
    name="console",
    settings=ConsoleSinkSettings,
    kinds=(Kind.CHANGE_LOG,),
    guarantee="Every change is printed once or more, in order per key; what comes again says the same place in Kafka.",
    extra="spark",
    packages=(),
    document="docs/sinks/console.md",
    open=_open,
)
