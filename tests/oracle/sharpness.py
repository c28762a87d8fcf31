"""`python -m tests.oracle.sharpness`: how many programs the oracle needs to notice each of a list of small bugs.

Programs are written on a node once, with what SELECT answers; then each bug is put into a copy of the sources, and the
short way goes through the programs there until one differs.
"""

from __future__ import annotations

import argparse
import os
import pickle
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from uuid import uuid4

from tailrace.local import LocalCassandra, LocalKafka
from tests.breakages.breakage import SOURCES, Breakage
from tests.breakages.run import ROOT, copy_tree, path_of
from tests.integration.agents import cql
from tests.oracle.comparison import Downstream
from tests.oracle.direct import Recorded, replay
from tests.oracle.kinds import kinds_of
from tests.oracle.trial import Ground, Recorder

_AT_ONCE = 10


def record(folder: Path, place: Path, seeds: range, statements: int) -> None:
    """Write programs of these seeds on a node of its own, and keep them in `folder`."""
    with LocalCassandra(place / "cassandra") as node, cql(node) as session:
        kafka = LocalKafka(place / "kafka")  # not started: nothing is published
        ground = Ground(nodes=(node,), kafka=kafka, session=session, reading=session)
        for first in range(seeds.start, seeds.stop, _AT_ONCE):
            name = f"o{uuid4().hex[:8]}"
            with Recorder(ground, name, place / name) as trial:
                trial.random_programs(range(first, min(first + _AT_ONCE, seeds.stop)), kinds_of, statements)
            for recorded in trial.recorded:
                (folder / f"{recorded.seed}").write_bytes(pickle.dumps(recorded))


def first_difference(folder: Path) -> tuple[int, str]:
    """How many of the programs in a folder it takes until one differs, and what differs, by the product that is
    imported; 0 where none does."""
    paths = sorted(folder.iterdir(), key=lambda path: int(path.name))
    for number, path in enumerate(paths, 1):
        recorded: Recorded = pickle.loads(path.read_bytes())  # noqa: S301  # what `record` wrote
        with tempfile.TemporaryDirectory() as place:
            try:
                with closing(Downstream(f"sqlite:///{place}/sink.db")) as database:
                    found = [str(one) for one in replay(recorded, database)]
            except Exception as error:
                found = [f"{type(error).__name__}: {error}"]
        if found:
            return number, found[0]
    return 0, ""


def noticed(folder: Path, bug: Breakage | None, tree: Path, place: Path) -> tuple[int, str]:
    """`first_difference` by a copy of `tree` with a bug in it, or without any."""
    broken = place / "broken"
    for name in SOURCES:
        shutil.copytree(tree / name, broken / name)
    try:
        if bug is not None:
            bug.apply(broken)
        found = subprocess.run(
            [sys.executable, "-m", "tests.oracle.sharpness", "--replay", str(folder)],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": path_of(broken), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            check=True,
        )
    finally:
        shutil.rmtree(broken)
    number, words = found.stdout.decode().split(" ", 1)
    return int(number), words.strip()


def report(folder: Path, bugs: Iterable[Breakage | None], place: Path) -> bool:
    """A line for each bug; whether all were noticed, and no bug is no difference."""
    tree = place / "tree"
    copy_tree(tree)
    right = True
    for bug in bugs:
        number, words = noticed(folder, bug, tree, place)
        right = right and (number > 0) is (bug is not None)
        name = "no bug" if bug is None else bug.name
        sys.stdout.write(f"| {name} | {number or 'not noticed'} |  {words[:200]}\n")
        sys.stdout.flush()
    return right


def main(arguments: Sequence[str] | None = None) -> int:
    """Record and report. 1 where a bug was not noticed, or no bug was."""
    from tests.oracle.bugs import BUGS

    parser = argparse.ArgumentParser(prog="python -m tests.oracle.sharpness", description=__doc__)
    parser.add_argument("names", metavar="NAME", nargs="*", help="parts of the bugs' names (default: all)")
    parser.add_argument("--seed", type=int, default=None, help="of the first program; by default another each time")
    parser.add_argument("--programs", type=int, default=30)
    parser.add_argument("--statements", type=int, default=500, help="of a program")
    parser.add_argument("--programs-in", type=Path, help="a folder for the programs: those in it are not written again")
    parser.add_argument("--replay", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.replay is not None:
        number, words = first_difference(chosen.replay)
        sys.stdout.write(f"{number} {words}\n")
        return 0
    seed = secrets.randbits(31) if chosen.seed is None else chosen.seed
    bugs = [bug for bug in BUGS if not chosen.names or any(name in bug.name for name in chosen.names)]
    for bug in bugs:
        bug.broken(ROOT)
    with tempfile.TemporaryDirectory(prefix="tailrace-sharpness-", ignore_cleanup_errors=True) as directory:
        place = Path(directory)
        folder = chosen.programs_in or place / "programs"
        folder.mkdir(parents=True, exist_ok=True)
        if not any(folder.iterdir()):
            record(folder, place, range(seed, seed + chosen.programs), chosen.statements)
        sys.stdout.write(f"programs of seeds {seed} and up\n\n| bug | programs until it was noticed |\n| --- | --- |\n")
        return 0 if report(folder, [None, *bugs], place) else 1


if __name__ == "__main__":
    sys.exit(main())
