"""A breakage: one small plausible bug, put into a copy of the sources, and the tests that have to go red by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.breakages.mutations import BreakageError, Mutation, mutated

SOURCES: Final = ("schemas", "common", "connector", "spark")
"""The folders of the product's packages."""
ASSERTED: Final = r"(?m)^E +(AssertionError|assert\b|Failed(?!: Timeout)|Left contains)"
"""What a failed assertion says in pytest's words; for tests that assert one thing. A test's time limit is none."""


class Needs(IntEnum):
    """The services that a breakage's tests need, the cheapest first."""

    NOTHING = 0
    KAFKA = 1
    NODE = 2
    """Kafka and Cassandra, the run's own."""
    MORE = 3
    """Services with settings of their own beside them."""


SESSIONS: Final = {
    "stream": Needs.KAFKA,
    "agent": Needs.NODE,
    "losses": Needs.NODE,
    "full": Needs.MORE,
    "held": Needs.MORE,
    "large definitions": Needs.MORE,
    "life": Needs.MORE,
    "security": Needs.MORE,
    "slow": Needs.MORE,
    "upgrades": Needs.MORE,
}
"""The sessions that breakages share, and what their tests need.

Their bug shows in processes that tests start, such as agents, and only these meet it. A breakage without a session has
one of its own, and tests themselves meet its bug.
"""


@dataclass(frozen=True, slots=True)
class Red:
    """A test that must fail: its file and its name, with its parameters where only some of them can.

    `says` is a regular expression that the text of a failed assertion, traceback and lines of the test included, must
    have, or the words of another error: so the test fails because of the promise, and not of something else.
    """

    file: str
    name: str
    says: str = ASSERTED

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
    """With the mutation in `symbol`, `module:Class.method` for example, `promise` does not hold.

    `reds` are the tests that must fail, under these variables of the environment too. `session` is one of SESSIONS.
    """

    name: str
    promise: str
    symbol: str
    mutation: Mutation
    reds: tuple[Red, ...]
    needs: Needs
    environment: Mapping[str, str] = field(default_factory=dict)
    session: str | None = None

    def broken(self, root: Path) -> str:
        """The text of the module with the bug in it. Raises BreakageError where it does not fit the sources."""
        try:
            return mutated(self._path(root).read_text("utf-8"), self.symbol.partition(":")[2], self.mutation)
        except BreakageError as error:
            raise BreakageError(f"{self.name} in {self.symbol}: {error}") from error

    def apply(self, root: Path) -> None:
        """Put the bug into the sources below `root`. Raises BreakageError."""
        broken = self.broken(root)
        self._path(root).write_text(broken, "utf-8")

    def _path(self, root: Path) -> Path:
        module = self.symbol.partition(":")[0].replace(".", "/")
        for folder in (*SOURCES, "."):
            if (path := root / folder / f"{module}.py").exists():
                return path
        raise BreakageError("there is no such module")


def breakage(
    promise: str,
    symbol: str,
    mutation: Mutation,
    *reds: Red,
    needs: Needs = Needs.NOTHING,
    session: str | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Breakage:
    """As a table has it, under its name."""
    return Breakage(
        name="",
        promise=promise,
        symbol=symbol,
        mutation=mutation,
        reds=reds,
        needs=needs if session is None else SESSIONS[session],
        environment=environment,
        session=session,
    )
