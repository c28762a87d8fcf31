"""Programs at once on a node, and at the end a database that has their log compared with what SELECT answers."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, Self

from cassandra.cluster import Session

from tailrace.cluster import LiveCluster
from tailrace.local import LocalCassandra, LocalKafka
from tests.corpus.kinds import Kinds
from tests.integration.agents import contact_of_node, create_keyspace
from tests.integration.faults.oracle import Links
from tests.oracle.comparison import Answer, Difference, Downstream, ask, differences
from tests.oracle.direct import Recorded, changes_by_keyspace, replay
from tests.oracle.program import Program
from tests.oracle.writing import Source, Writer
from tests.support.waiting import until

SECONDS: Final = 300.0
"""How long anything that is waited for may make no progress."""
_AT_ONCE: Final = 3
_SWEEP_SECONDS: Final = 30.0
_NEAREST_EXPIRY: Final = 3 + 5
"""The longest of the short TTLs, and what must lie between an expiry and a comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What several trials run on. `session` writes, `reading` answers: at a consistency that sees all of it."""

    nodes: tuple[LocalCassandra, ...]
    kafka: LocalKafka
    session: Session
    reading: Session


@dataclass(slots=True)
class Found:
    """What became of one program: how many changes the log had, `counts` of what SELECT answered (comparison.Answer),
    and `differences` by way and database; none at all is what is hoped for."""

    keyspace: str
    program: Program
    changes: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    differences: dict[str, list[Difference]] = field(default_factory=dict)

    @property
    def equal(self) -> bool:
        """Whether every database showed what was answered, whichever way it came there."""
        return not any(self.differences.values())

    @property
    def failed(self) -> list[str]:
        """The ways that differ."""
        return [way for way, found in self.differences.items() if found]

    def __str__(self) -> str:
        said = [f"\n  {way}: {one}" for way, found in self.differences.items() for one in found[:5]]
        return f"seed {self.program.seed}, {len(self.program.lines)} lines:{''.join(said)}"


class Trial:
    """Programs in keyspaces `<name>_<number>`, by the short way: from the node's segments straight into a sink.

    `direct` makes the URL of a new database for a program of this name.
    """

    def __init__(self, ground: Ground, name: str, place: Path, direct: Callable[[str], str], random: Random) -> None:
        self._ground = ground
        self._name = name
        self._home = f"{name}_marks"
        self._place = place
        self._direct = direct
        self._random = random
        self._stack = ExitStack()
        self._marked = 0
        self._serial = 0
        self._writers: list[Writer] = []
        self._expected = 1
        self.seconds: dict[str, float] = {}
        self._began = 0.0
        self._asked = 0.0

    # -- its parts

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._set_up(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def _set_up(self, stack: ExitStack) -> None:
        self._place.mkdir(parents=True)
        stack.callback(shutil.rmtree, self._place, ignore_errors=True)
        ground, first = self._ground, self._ground.nodes[0]
        live = stack.enter_context(closing(LiveCluster(contact_of_node(first))))
        self._source = Source(ground.session, live, len(ground.nodes))
        create_keyspace(ground.session, self._home, len(ground.nodes))
        stack.callback(ground.session.execute, f"DROP KEYSPACE {self._home}")
        ground.session.execute(f"CREATE TABLE {self._home}.marks (k int PRIMARY KEY) WITH cdc = true")
        definitions = {str(table): table for table in live.definitions().tables}
        self.marks, self._local = definitions[f"{self._home}.marks"], definitions["system.local"]
        self.links = stack.enter_context(Links(first.commitlog, self._place / "links"))

    # -- what it does

    def random_programs(self, seeds: Sequence[int], kinds: Callable[[int], Kinds], statements: int) -> list[Found]:
        """Programs of these seeds, several at once, disturbed meanwhile; then everything is compared, in every way."""
        self._began = time.monotonic()
        self._expected = len(seeds) * statements
        writers = self._writers = [Writer(self._source, f"{self._name}_{self._next()}") for _ in seeds]
        with self._disturbing(), ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="writer") as pool:
            pairs = zip(seeds, writers, strict=True)
            programs = list(pool.map(lambda pair: pair[1].write(pair[0], kinds(pair[0]), statements), pairs))
            self.mark()
        self._step("writing")
        found = [Found(writer.keyspace, program) for writer, program in zip(writers, programs, strict=True)]
        answers = self._ask(writers)
        self._step("asking")
        self._judge(found, answers, writers)
        for writer in writers:
            writer.drop()
        self._step("dropping")
        return found

    @property
    def progress(self) -> float:
        """What share of the round's statements was executed."""
        return sum(len(writer.lines) for writer in self._writers) / self._expected

    def fail(self, programs: Sequence[Program], *, short: bool) -> list[bool]:
        """Which of these programs still differ, by the short way alone or by the others; undisturbed."""
        seen = {path.name for path in self.links.paths()[:-2]}
        writers = [Writer(self._source, f"{self._name}_{self._next()}") for _ in programs]
        for writer, program in zip(writers, programs, strict=True):
            writer.repeat(program)
        self.mark()
        found = [Found(writer.keyspace, program) for writer, program in zip(writers, programs, strict=True)]
        answers = self._ask(writers)
        if short:
            self._short_way(found, answers, writers, seen)
        else:
            self._compare(found, answers)
        for writer in writers:
            writer.drop()
        return [not one.equal for one in found]

    def mark(self) -> None:
        """A row behind everything that was written, which is waited for."""
        self._marked += 1
        self._ground.session.execute(f"INSERT INTO {self.marks} (k) VALUES ({self._marked})")

    def _judge(self, found: Sequence[Found], answers: Mapping[str, list[Answer]], writers: Sequence[Writer]) -> None:
        self._short_way(found, answers, writers)
        self._step("the short way")

    def _compare(self, found: Sequence[Found], answers: Mapping[str, list[Answer]]) -> None:
        raise NotImplementedError("this trial knows the short way only")

    def _disturbing(self) -> AbstractContextManager[None]:
        """While inside, whatever runs beside the node is disturbed."""
        return nullcontext()

    def _next(self) -> int:
        self._serial += 1
        return self._serial

    def _step(self, name: str) -> None:
        now = time.monotonic()
        self.seconds[name], self._began = now - self._began, now

    def _ask(self, writers: Sequence[Writer]) -> dict[str, list[Answer]]:
        """What SELECT answers, once nothing is near its expiry."""
        due = max(writer.finished + (_NEAREST_EXPIRY if writer.expires else 0) for writer in writers)
        until(lambda: time.time() > due, "what expires soon to have expired", _NEAREST_EXPIRY + 60)
        self._asked = time.time()
        return {writer.keyspace: ask(self._ground.reading, writer.present) for writer in writers}

    def _short_way(
        self,
        found: Sequence[Found],
        answers: Mapping[str, list[Answer]],
        writers: Sequence[Writer],
        skipped: Container[str] = (),
    ) -> None:
        """The programs from the segments into other databases, in any order, a part of it twice."""
        tables = {id: table for writer in writers for id, table in writer.tables.items()}
        until(self._is_logged, "the mark in the log", SECONDS)
        segments = [path for path in self.links.paths() if path.name not in skipped]
        changes = changes_by_keyspace(segments, tables, self._local)
        for one, writer in zip(found, writers, strict=True):
            answered = tuple(answers[one.keyspace])
            one.changes = len(changes[one.keyspace])
            one.counts = sum((answer.counts for answer in answered), Counter())
            told = Recorded(one.program.seed, tuple(changes[one.keyspace]), answered, writer.began, self._asked)
            self._replay(one, told)

    def _replay(self, one: Found, recorded: Recorded) -> None:
        with closing(Downstream(self._direct(one.keyspace))) as database:
            one.differences[f"short, {database.kind}"] = replay(recorded, database)

    def _is_logged(self) -> bool:
        """Whether the log has the last mark up to its last sync."""
        marks = {self.marks.id: self.marks}
        found = changes_by_keyspace(self.links.paths()[-4:], marks)[self._home]
        return any(int.from_bytes(change.key or b"", "big") == self._marked for change in found)


class Recorder(Trial):
    """Keeps programs as they were recorded, and holds no sink against them."""

    def __init__(self, ground: Ground, name: str, place: Path) -> None:
        super().__init__(ground, name, place, str, Random(0))
        self.recorded: list[Recorded] = []

    def _replay(self, one: Found, recorded: Recorded) -> None:  # noqa: ARG002 - it is a Trial's
        self.recorded.append(recorded)


def compared(one: Found, answers: Sequence[Answer], database: Downstream) -> Iterator[Difference]:
    """How a database differs for one program, dead letters too. What has expired may still be about to be swept."""
    told: list[Difference] = []

    def equal() -> bool:
        nonlocal told
        told = differences(answers, database)
        return not told

    with suppress(AssertionError):  # what differs is the result
        until(equal, "an equal database", _SWEEP_SECONDS if one.program.expires else 0)
    yield from told
    for topic, reason in database.set_aside():
        if f".{one.keyspace}." in topic:
            yield Difference(topic, (), reason)
