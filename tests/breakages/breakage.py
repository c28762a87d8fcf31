"""A breakage: one small plausible bug, put into a copy of the sources, and the tests that have to go red by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Final

ASSERTED: Final = r"(?m)^E +(AssertionError|assert\b|Failed(?!: Timeout)|Left contains)"
"""What a failed assertion says in pytest's words; for tests that assert one thing. A test's time limit is none."""


class BreakageError(Exception):
    """A breakage that does not fit the sources any more; the words say what to look at."""


class Needs(IntEnum):
    """The services that a breakage's tests need, the cheapest first."""

    NOTHING = 0
    KAFKA = 1
    NODE = 2
    """Kafka and Cassandra, the run's own."""
    MORE = 3
    """Services with settings of their own beside them."""


@dataclass(frozen=True, slots=True)
class Red:
    """A test that must fail: its file and its name, with its parameters where only some of them can.

    `says` is a regular expression that the failure's text, traceback and lines of the test included, must have: so
    it fails because of the promise, and not of something else.
    """

    file: str
    name: str
    says: str

    @property
    def node(self) -> str:
        """As pytest names it."""
        return f"tests/{self.file}::{self.name}"

    @property
    def function(self) -> str:
        """The name without parameters."""
        return self.name.partition("[")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakage:
    """In `file`, below the tree's root, `old` stands exactly once, and becomes `new`: then `promise` does not hold.

    `reds` are the tests that must fail, under these variables of the environment too.
    """

    name: str
    promise: str
    file: str
    old: str
    new: str
    needs: Needs
    reds: tuple[Red, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    session: str | None = None
    """Breakages of one session share their tests' services: their bug shows in processes that tests start, such as
    agents, and only these meet it. Each of the others has a session of its own, and tests themselves meet its bug.
    """

    def broken(self, root: Path) -> str:
        """The text of the file with the bug in it. Raises BreakageError where `old` is not there exactly once."""
        text = (root / self.file).read_text("utf-8")
        if (count := text.count(self.old)) != 1:
            raise BreakageError(f"{self.name}: its old text stands {count} times in {self.file}, and must once")
        return text.replace(self.old, self.new)

    def apply(self, root: Path) -> None:
        """Put the bug into the sources below `root`. Raises BreakageError."""
        (root / self.file).write_text(self.broken(root), "utf-8")
