"""What the console's sink prints."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tailrace_spark.sinks.changelog.sink import ChangeLogSink
from tailrace_spark.sinks.console.outlet import ConsoleOutlet
from tailrace_spark.sinks.protocol import Sink
from tests.support.letters import MemoryLetters
from tests.unit.spark.sinks.change_log_contract import Crash


class Pipe(io.StringIO):
    """What the other end of a pipe has got; it breaks after so many lines."""

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None

    def write(self, text: str) -> int:
        if self.left is not None:
            if self.left == 0:
                raise Crash
            self.left -= 1
        return super().write(text)


class Printed:
    """Lines of a pipe."""

    exactly_once = False

    def __init__(self) -> None:
        self._pipe = Pipe()
        self.letters = MemoryLetters()

    def open(self, dies_after: int | None = None) -> Sink:
        self._pipe.left = dies_after
        return ChangeLogSink(ConsoleOutlet(self._pipe, self.letters, tables=False))

    def _lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._pipe.getvalue().split("\n") if line]

    def records(self) -> Sequence[Mapping[str, Any]]:
        return [line for line in self._lines() if "reason" not in line]
