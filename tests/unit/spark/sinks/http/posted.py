"""What an endpoint has of the HTTP sink's requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tailrace_common.backoff import Waits
from tailrace_spark.sinks.changelog.sink import ChangeLogSink
from tailrace_spark.sinks.http.client import HttpSender
from tailrace_spark.sinks.http.outlet import HttpOutlet
from tailrace_spark.sinks.http.settings import HttpSinkSettings
from tailrace_spark.sinks.protocol import Sink
from tests.support.letters import MemoryLetters
from tests.unit.spark.sinks.http.endpoint import TAKEN, Answer, Endpoint, Request

PROMPT = Waits(0.001, 0.002)


class Posted:
    """What an endpoint has taken, and the dead letters."""

    exactly_once = False

    def __init__(self, **settings: object) -> None:
        self.endpoint = Endpoint()
        self.letters = MemoryLetters()
        given = {"batch_records": 3, "retry_seconds": 60, "breaker_failures": 1000, **settings}
        self.settings = HttpSinkSettings.model_validate({"url": self.endpoint.url, **given})

    def open(self, dies_after: int | None = None) -> Sink:
        """Dead to the endpoint after so many requests: it takes nothing, and the last one it takes has no answer."""
        begun = len(self.endpoint.requests)

        def answer(request: Request) -> Answer:
            if dies_after is None or request.number < begun + dies_after:
                return TAKEN
            return "drop after" if request.number == begun + dies_after else "drop"

        self.endpoint.answer = answer
        more = {"retry_seconds": 0.003, "lanes": 1} if dies_after is not None else {}
        return self.sink(**more)

    def sink(self, **more: object) -> Sink:
        settings = self.settings.model_copy(update=more)
        return ChangeLogSink(HttpOutlet(HttpSender("there", settings, waits=PROMPT), settings, self.letters))

    def records(self) -> Sequence[Mapping[str, Any]]:
        return list(self.endpoint.taken)
