"""`make soak`: random programs for as long as asked; a seed that fails is printed and shrunk.

Every round has services in common with the others, and agents, a stream and databases of its own.
"""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from uuid import uuid4

from tailrace.local import CassandraSettings, Services
from tests import mariadb, postgres
from tests.integration.agents import cql
from tests.oracle.following import ProcessFollower, Sections
from tests.oracle.kinds import finite_kinds_of, kinds_of
from tests.oracle.shrinking import shrink
from tests.oracle.stream_trial import StreamTrial
from tests.oracle.trial import Found, Ground, Trial

FAILURES = Path("build/oracle")
# A write that the node does after it has said that it timed out may come behind the SELECT.
_PATIENCE = {f"{kind}_request_timeout": "60s" for kind in ("read", "range", "write", "counter_write", "truncate")}
DATABASES = {"postgresql": postgres.new_database, "mariadb": mariadb.new_database}


@dataclass(slots=True)
class Totals:
    """What was done so far."""

    counts: Counter[str] = field(default_factory=Counter)
    failed: list[Found] = field(default_factory=list)

    def __str__(self) -> str:
        return told(self.counts)

    def take(self, found: Sequence[Found], kills: Counter[str]) -> None:
        """Count a round."""
        self.counts["rounds"] += 1
        self.counts["programs"] += len(found)
        self.counts["statements"] += sum(len(one.program.lines) for one in found)
        self.counts["changes"] += sum(one.changes for one in found)
        for name in ("rows", "cells", "collections"):
            self.counts[f"{name} compared"] += sum(one.counts[name] * len(one.differences) for one in found)
        self.counts["kills of the agent"] += kills["agent"]
        self.counts["kills of the stream"] += kills["stream"]
        failed = [one for one in found if not one.equal]
        self.counts["programs that differ"] += len(failed)
        self.counts["differences"] += sum(len(told) for one in failed for told in one.differences.values())
        self.failed += failed


def soak(
    ground: Ground,
    place: Path,
    *,
    seconds: float,
    seed: int,
    programs: int,
    statements: int,
    short: bool,
    others: Sequence[str],
) -> Totals:
    """Rounds until the time is over, at least one; the seeds count up from `seed`. `short`: by the short way alone."""
    began, totals = time.monotonic(), Totals()
    kinds = finite_kinds_of if "mariadb" in others else kinds_of
    while not totals.counts["rounds"] or time.monotonic() - began < seconds:
        seeds = range(seed, seed := seed + programs)
        since = time.monotonic()
        with _trial(ground, place, seeds[0], others, short=short) as trial:
            found = trial.random_programs(seeds, kinds, statements)
            totals.take(found, trial.kills if isinstance(trial, StreamTrial) else Counter())
            steps = ", ".join(f"{name} {taken:.0f}" for name, taken in trial.seconds.items())
            say(f"seeds {seeds[0]} to {seeds[-1]} in {time.monotonic() - since:.0f} s ({steps}); so far {totals}")
            if short:
                _release(ground)
            for one in found:
                lines = len(one.program.lines)
                say(f"seed {one.program.seed}: {lines} lines, {one.changes} changes, {told(one.counts)}")
                if not one.equal:
                    say(f"DIFFERENT: {one}")
                    _keep(one, "whole")
    return totals


def shrunk(ground: Ground, place: Path, one: Found, seconds: float, others: Sequence[str]) -> None:
    """Look for fewer statements that fail as well, at most so long, and keep what is found."""
    short = any(way.startswith("short") for way in one.failed)
    until = time.monotonic() + seconds
    first, rest = one.program.lines[:1], one.program.lines[1:]
    with _trial(ground, place, one.program.seed, others, short=short) as trial:

        def fails(candidates: Sequence[Sequence[str]]) -> list[bool]:
            return trial.fail([one.program.only((*first, *lines)) for lines in candidates], short=short)

        if not fails([rest])[0]:
            say(f"seed {one.program.seed}: the same statements once more, and no difference: it takes the kills")
            return
        lines = shrink(rest, fails, lambda: time.monotonic() < until)
    one.program = one.program.only((*first, *lines))
    say(f"seed {one.program.seed} in {len(lines) + 1} lines:\n{one.program}")
    _keep(one, "shrunk")


def _trial(ground: Ground, place: Path, seed: int, others: Sequence[str], *, short: bool) -> Trial:
    name = f"o{uuid4().hex[:8]}"
    random = Random(seed)

    def direct(program: str) -> str:
        kind = random.choice(("sqlite", "sqlite", *others))
        return f"sqlite:///{place / name / program}.db" if kind == "sqlite" else DATABASES[kind]()

    if short:
        return Trial(ground, name, place / name, direct, random)
    urls = [f"sqlite:///{place / name / 'stream'}.db", *(DATABASES[kind]() for kind in others)]

    def follow(sections: Sections) -> ProcessFollower:
        return ProcessFollower(place / name / "stream", sections, urls)

    return StreamTrial(ground, name, place / name, urls, direct, follow, random)


def _release(ground: Ground) -> None:
    """Delete what the node has written for CDC, as no agent does it."""
    for node in ground.nodes:
        for path in sorted(node.cdc_raw.glob("CommitLog-*"))[:-8]:
            path.unlink(missing_ok=True)


def _keep(one: Found, what: str) -> None:
    FAILURES.mkdir(parents=True, exist_ok=True)
    path = FAILURES / f"{one.program.seed}-{what}.cql"
    path.write_text(f"-- {str(one).replace(chr(10), chr(10) + '-- ')}\n{one.program}")
    say(f"kept in {path}")


def told(counts: Counter[str]) -> str:
    """Each count with its name."""
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def say(words: str) -> None:
    """For people."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {words}\n")
    sys.stderr.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Start the services, soak, shrink what failed. 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=None, help="of the first program; by default another each time")
    parser.add_argument("--programs", type=int, default=8, help="in a round")
    parser.add_argument("--statements", type=int, default=500, help="of a program")
    parser.add_argument("--shrink-seconds", type=float, default=900, help="for each of three that fail; 0: not at all")
    parser.add_argument("--databases", nargs="*", choices=DATABASES, default=["postgresql"], help="beside SQLite")
    parser.add_argument("--short", action="store_true", help="from the log into the sinks, without agent and stream")
    chosen = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that it ends what it has started
    seed = secrets.randbits(31) if chosen.seed is None else chosen.seed
    with tempfile.TemporaryDirectory(prefix="tailrace-soak-") as directory, ExitStack() as stack:
        place = Path(directory)
        services = stack.enter_context(
            Services(place / "services", CassandraSettings(cdc_total_mib=2048, yaml=_PATIENCE))
        )
        session = stack.enter_context(cql(services.cassandra))
        ground = Ground(nodes=(services.cassandra,), kafka=services.kafka, session=session, reading=session)
        totals = soak(
            ground,
            place,
            seconds=chosen.seconds,
            seed=seed,
            programs=chosen.programs,
            statements=chosen.statements,
            short=chosen.short,
            others=chosen.databases,
        )
        for one in totals.failed[:3] if chosen.shrink_seconds else ():
            shrunk(ground, place, one, chosen.shrink_seconds, chosen.databases)
    say(f"seeds {seed} and up: {totals}")
    return 1 if totals.failed else 0


if __name__ == "__main__":
    sys.exit(main())
