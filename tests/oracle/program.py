"""A program: the statements of one random history, told so that they can be executed again in another keyspace."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

_KEYSPACE: Final = "{keyspace}"
_WRITTEN: Final = re.compile(r"TIMESTAMP (\d{16})\b")
_NEAR: Final = re.compile(r"TTL [1-9]\b|default_time_to_live = [1-9]\b")
_UNTIL: Final = re.compile(r"TTL \{until\+(\d+)\}")
_TOLD: Final = re.compile(r"TIMESTAMP \{now([+-]\d+)\}")


@dataclass(frozen=True, slots=True)
class Program:
    """`lines` are CQL in which `{keyspace}` stands for the keyspace, and `{now-5000000}` for a time that was chosen by
    the clock: so many microseconds before the program began. `TTL {until+10000}` is the TTL until so many seconds
    behind that. The first one makes the keyspace."""

    seed: int
    lines: tuple[str, ...]

    @property
    def expires(self) -> bool:
        """Whether anything of it lives for seconds only."""
        return any(_NEAR.search(line) for line in self.lines)

    def __str__(self) -> str:
        return "".join(f"{line};\n" for line in self.lines)

    def within(self, keyspace: str, now: int) -> list[str]:
        """The statements in this keyspace, TTLs as they are told; it begins `now`, microseconds since the epoch."""
        return [told_again(line, keyspace, now) for line in self.lines]

    def only(self, lines: Iterable[str]) -> Program:
        """A program of fewer lines."""
        return replace(self, lines=tuple(lines))


def told(statement: str, keyspace: str, now: int) -> str:
    """The line for a statement that was executed in a program that began at `now`."""
    line = statement.replace(keyspace, _KEYSPACE)
    return _WRITTEN.sub(lambda found: f"TIMESTAMP {{now{int(found[1]) - now:+d}}}", line)


def told_again(line: str, keyspace: str, now: int) -> str:
    """The statement that a line stands for."""
    return _TOLD.sub(lambda found: f"TIMESTAMP {now + int(found[1])}", line.replace(_KEYSPACE, keyspace))


def due(statement: str, began: float, now: float) -> str:
    """The statement with its TTLs chosen for this moment; both are seconds since the epoch."""
    return _UNTIL.sub(lambda found: f"TTL {int(began) + int(found[1]) - int(now)}", statement)
