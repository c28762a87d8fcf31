"""The headings under which `tailrace --help` lists its commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tailrace_common.cli.program import Commands

HEADINGS: Final = {
    "Run": ("demo", "init", "check", "agent", "stream", "snapshot", "local"),
    "Look": ("tail", "topics", "sinks", "generations", "dead-letters"),
    "Steer": ("drain", "hosts", "offsets", "losses", "parked", "replay", "sink-letters", "compare"),
    "Subscriptions": (
        "server",
        "subscribe",
        "subscriptions",
        "pause",
        "resume",
        "alter",
        "reset",
        "cancel",
        "apply",
        "api-keys",
        "server-key",
        "server-meta",
        "sql",
    ),
    "Segment files": ("inspect", "verify", "dump", "schema", "token"),
    "Lakes": ("delta", "iceberg"),
}


class Headed(Commands):
    """A program's commands under several headings."""

    def headings(self) -> Iterator[tuple[str, Sequence[str]]]:
        """By `HEADINGS`; what they do not have comes last."""
        named = {name for names in HEADINGS.values() for name in names}
        for heading, names in HEADINGS.items():
            yield heading, [name for name in names if name in self.commands]
        yield "Others", [name for name in self.commands if name not in named]
