"""Which contract each sink was held to in a run, against which server of which version, and what became of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import Any, Final, NamedTuple

from tailrace_common.java.jars import LOCK, locked_jars
from tests import jars

HOLDS: Final = "_held"
"""The fixture of tests that hold a sink to something; it calls `hold`."""
_PROPERTY: Final = "held"
Record = Callable[[str, object], None]
"""pytest's record_property."""


class Held(NamedTuple):
    """A sink and its contract; and what it writes to, with the version."""

    sink: str
    contract: str
    server: str


def hold(record: Record, sink: str, contract: str, server: str) -> None:
    """Note what the running test holds a sink to."""
    record(_PROPERTY, (sink, contract, server))  # a plain tuple: pytest-xdist sends it to the process that reports


def jar_version(of: str, artifact: str) -> str:
    """The version of a locked jar of a set, which is that of the server that is made of it."""
    lock = jars.LOCK if of in jars.SETS else LOCK
    parts = [jar.coordinate.split(":") for jar in locked_jars(of, lock=lock)]
    [found] = {part[2] for part in parts if part[1] == artifact}
    return found


def package(name: str, distribution: str = "") -> str:
    """A package by its name, with its version."""
    return f"{name} {version(distribution or name)}"


def summary(outcomes: Iterable[tuple[str, list[tuple[str, Any]]]]) -> list[str]:
    """Lines of a table: for each sink, contract and server the number of tests by outcome; none where nothing was held.

    `outcomes` are each test's outcome and properties.
    """
    counts: dict[Held, Counter[str]] = defaultdict(Counter)
    for outcome, properties in outcomes:
        for name, held in properties:
            if name == _PROPERTY:
                counts[Held(*held)][outcome] += 1
    if not counts:
        return []
    rows = [("sink", "contract", "against", "tests")]
    rows += [(*held, ", ".join(f"{n} {what}" for what, n in sorted(found.items()))) for held, found in counts.items()]
    rows[1:] = sorted(rows[1:])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
