"""The type `http`: changes posted as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tailrace_spark.sinks.http.settings import HttpSinkSettings
from tailrace_spark.sinks.protocol import ReachableSink
from tailrace_spark.sinks.sink_type import Kind, SinkType, Surroundings


def _open(name: str, settings: HttpSinkSettings, around: Surroundings) -> ReachableSink:
    from tailrace_spark.sinks.changelog.dead_letter_file import DeadLetterFile
    from tailrace_spark.sinks.changelog.file_dead_letters import StoredDeadLettersSink
    from tailrace_spark.sinks.http.client import HttpSender
    from tailrace_spark.sinks.http.outlet import HttpOpener, HttpOutlet
    from tailrace_spark.sinks.images.planning import images_for

    letters = DeadLetterFile(settings.dead_letters or Path(f"tailrace-dead-letters-{name}.jsonl"))
    outlet = HttpOutlet(HttpSender(name, settings), settings, letters)
    images = images_for(name, settings, around)
    opener, transactions = HttpOpener(name, settings), settings.transactions
    return StoredDeadLettersSink(outlet, letters, images.store, opener, images.planner, transactions=transactions)


HTTP: Final = SinkType(
    name="http",
    settings=HttpSinkSettings,
    kinds=(Kind.CHANGE_LOG,),
    guarantee="Every change is posted once or more, in order per key; a request that comes again has the same id.",
    extra="http",
    packages=("httpx2",),
    document="docs/sinks/http.md",
    open=_open,
    where="url",
)
