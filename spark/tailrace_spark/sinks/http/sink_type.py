"""The type `http`: changes posted as JSON."""

from __future__ import annotations

from typing import Final

from tailrace_spark.sinks.http.settings import HttpSinkSettings
from tailrace_spark.sinks.protocol import ReachableSink
from tailrace_spark.sinks.sink_type import Kind, SinkType, Surroundings


def _open(name: str, settings: HttpSinkSettings, around: Surroundings) -> ReachableSink:
    from tailrace_spark.sinks.changelog.sink import ChangeLogSink, OpenedShares
    from tailrace_spark.sinks.http.outlet import HttpOpener
    from tailrace_spark.sinks.images.planning import images_for

    images, made_of = images_for(name, settings, around)
    opener = HttpOpener(name, settings, around.letters)
    shares, transactions = OpenedShares(opener), settings.transactions
    return ChangeLogSink(opener.open(), images, shares, made_of, transactions=transactions)


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
