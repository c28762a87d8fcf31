"""`python -m tests.breakages [NAME...] [--list]`: shows the tests red, one breakage after the other.

Tables for people, JSON lines where the output is no terminal. Exit code 1 where a test was not red, or not because of
the promise. What the tests printed is left in build/breakages.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tests.breakages.breakage import Breakage
from tests.breakages.mutations import BreakageError
from tests.breakages.run import RED, ROOT, Judgement, run, sessions
from tests.breakages.table import BREAKAGES

AT_ONCE: Final = 2
"""So many sessions run beside each other: most of a session is the start of what it needs."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run those that are named, or all of them, or list them; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.breakages", description=__doc__)
    parser.add_argument("names", metavar="NAME", nargs="*", help="breakages, or parts of their names (default: all)")
    parser.add_argument("--list", action="store_true", help="say what there is, and run nothing")
    given = parser.parse_args(arguments)
    try:
        chosen = choose(given.names)
        if given.list:
            for one in chosen:
                tell_breakage(one)
            return 0
        with ThreadPoolExecutor(AT_ONCE) as lanes:
            found = [one for some in lanes.map(told, sessions(chosen)) for one in some]
        return 0 if all(one.outcome == RED for one in found) else 1
    except BreakageError as error:
        sys.stderr.write(f"{error}\n")
        return 2


def choose(names: Sequence[str]) -> list[Breakage]:
    """Those with these names, or parts of them. Raises BreakageError for a name that none has."""
    for name in names:
        if not any(name in one.name for one in BREAKAGES):
            raise BreakageError(f"no breakage is called {name}; --list shows all")
    exact = {one.name for one in BREAKAGES} & set(names)
    rest = [name for name in names if name not in exact]
    return [one for one in BREAKAGES if not names or one.name in exact or any(name in one.name for name in rest)]


def told(breakages: Sequence[Breakage]) -> list[Judgement]:
    """Run one session, and print what came of it."""
    found = []
    for one in run(breakages, ROOT / "build" / "breakages"):
        tell_judgement(one)
        found.append(one)
    return found


def tell_judgement(one: Judgement) -> None:
    """One line: breakage, test, outcome, seconds; what it was known by below it."""
    if sys.stdout.isatty():
        test = one.test.rpartition("/")[2]
        sys.stdout.write(f"{one.breakage:<40} {test:<80} {one.outcome:<12} {one.seconds:6.1f} s\n    {one.words}\n")
    else:
        sys.stdout.write(f"{json.dumps(dataclasses.asdict(one))}\n")
    sys.stdout.flush()


def tell_breakage(one: Breakage) -> None:
    """A breakage and its tests."""
    if sys.stdout.isatty():
        tests = "".join(f"    {red.node.removeprefix('tests/')}\n" for red in one.reds)
        sys.stdout.write(f"{one.name} ({one.needs.name.lower()}): {one.promise}\n{tests}")
    else:
        told = {"name": one.name, "needs": one.needs.name.lower(), "promise": one.promise, "symbol": one.symbol}
        sys.stdout.write(f"{json.dumps({**told, 'tests': [red.node for red in one.reds]})}\n")


if __name__ == "__main__":
    sys.exit(main())
