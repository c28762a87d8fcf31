"""How groups of commands show themselves: under headings, with whole summaries; and options that may stand anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from typer.core import TyperGroup

HEADINGS: Final = {
    "Run": ("demo", "init", "check", "agent", "stream", "local"),
    "Look": ("tail", "topics", "sinks", "generations", "dead-letters"),
    "Steer": ("hosts", "offsets", "losses", "parked", "replay", "sink-letters"),
    "Segment files": ("inspect", "verify", "dump", "schema", "token"),
    "Lakes": ("delta", "files", "iceberg"),
}
LOGGING: Final = ("--log-level", "--log-format")


class Listing(TyperGroup):
    """A group of commands whose help cuts no summary."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Each command's name and first sentence. `ctx` and `formatter` are typer's, whose classes are not public."""
        for heading, names in self.headings():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            rows = [(name, command.get_short_help_str(limit=1000)) for name, command in commands if command]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def headings(self) -> Iterator[tuple[str, Sequence[str]]]:
        """The commands' names by heading."""
        yield "Commands", list(self.commands)


class Headed(Listing):
    """The same under several headings."""

    def headings(self) -> Iterator[tuple[str, Sequence[str]]]:
        """By `HEADINGS`; what they do not have comes last."""
        named = {name for names in HEADINGS.values() for name in names}
        for heading, names in HEADINGS.items():
            yield heading, [name for name in names if name in self.commands]
        yield "Others", [name for name in self.commands if name not in named]


def logging_first(words: Sequence[str]) -> list[str]:
    """A command line with the options of logging moved to its front; what follows `--` stays as it is."""
    first: list[str] = []
    remaining: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            remaining += [word, *rest]
        elif word in LOGGING:
            first += [word, *([value] if (value := next(rest, None)) is not None else [])]
        elif word.partition("=")[0] in LOGGING:
            first.append(word)
        else:
            remaining.append(word)
    return first + remaining
