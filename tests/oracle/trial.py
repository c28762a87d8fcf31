"""One round: programs at once on the node, agent and stream killed meanwhile, and at the end both sides compared."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, Self

from cassandra.cluster import Session
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # its __all__ forgets it

from tailrace.cluster import Contact, LiveCluster
from tailrace.demo.checkpoint import Checkpoint
from tailrace.local import LocalCassandra, LocalKafka
from tailrace.local.process import wait_until
from tailrace_common.kafka import TopicReader
from tailrace_common.settings import Settings
from tailrace_schemas.table import Table
from tailrace_schemas.topics import table_topic
from tests.corpus.kinds import Kinds
from tests.integration.agents import AgentProcess, create_keyspace, settings_for, start_here
from tests.integration.faults.oracle import Links
from tests.oracle.comparison import Answer, Difference, Downstream, ask, differences
from tests.oracle.direct import changes_by_keyspace, deliver
from tests.oracle.following import Follower, open_sinks
from tests.oracle.program import Program
from tests.oracle.writing import Source, Writer

_SETTLE_SECONDS: Final = 300.0
_SWEEP_SECONDS: Final = 60.0
_NEAREST_EXPIRY: Final = 3 + 5
"""The longest of the short TTLs, and what must lie between an expiry and a comparison."""

Sections = Mapping[str, Mapping[str, object]]
MakeFollower = Callable[[Sections], Follower]
"""Makes a stream with these settings, and with the trial's databases for its sinks."""
Work = Callable[[Writer], Program]
"""Writes one program and tells it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What several trials run on. `session` writes, `reading` answers: at a consistency that sees all of it."""

    nodes: tuple[LocalCassandra, ...]
    kafka: LocalKafka
    session: Session
    reading: Session


@dataclass(slots=True)
class Found:
    """What became of one program: how many rows SELECT answered, how many changes the log had, and `differences` by
    way and database; none at all is what is hoped for."""

    keyspace: str
    program: Program
    rows: int = 0
    changes: int = 0
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
    """Agents and a stream of its own, which follow the keyspaces `<name>_<number>` into databases."""

    def __init__(
        self, ground: Ground, name: str, place: Path, urls: Sequence[str], follower: MakeFollower, random: Random
    ) -> None:
        self._ground = ground
        self._name = name
        self._place = place
        self._random = random
        self._make = follower
        self._databases = {url.split(":")[0].split("+")[0]: Downstream(url) for url in urls}
        self._stack = ExitStack()
        self._marks: Table | None = None
        self._marked = 0
        self._runs = 0
        self._serial = 0
        self.kills: Counter[str] = Counter()

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
        live = stack.enter_context(closing(LiveCluster(Contact(hosts=(first.address,), port=first.port))))
        self._source = Source(ground.session, live, len(ground.nodes))
        self._home = f"{self._name}_marks"
        create_keyspace(ground.session, self._home, len(ground.nodes))
        stack.callback(ground.session.execute, f"DROP KEYSPACE {self._home}")
        ground.session.execute(f"CREATE TABLE {self._home}.marks (k int PRIMARY KEY) WITH cdc = true")
        for node in ground.nodes:
            start_here(ground.session, node, ground.kafka, self._name, self._home)
        self._marks = next(t for t in live.definitions().tables if (t.keyspace, t.name) == (self._home, "marks"))
        self.links = stack.enter_context(Links(first.commitlog, self._place / "links"))
        stack.callback(self._delete_topics)
        for database in self._databases.values():
            stack.callback(database.close)
        self.agents = [
            stack.enter_context(AgentProcess(self._place, self._agent_settings(node), f"agent{number}"))
            for number, node in enumerate(ground.nodes)
        ]
        stack.callback(self._end)
        self._follow()

    def _agent_settings(self, node: LocalCassandra) -> dict[str, dict[str, object]]:
        settings = settings_for(node, self._ground.kafka, self._name)
        settings["tables"] = {"include": [f"{self._name}_*.*"]}
        settings["topics"]["partitions"] = 2
        return settings

    def _follow(self) -> None:
        """A stream from the topics' beginning on."""
        self._runs += 1
        self._checkpoint = self._place / f"checkpoint{self._runs}"
        self.follower: Follower | None = self._make(
            {
                "kafka": {"bootstrap.servers": self._ground.kafka.bootstrap},
                "topics": {"prefix": self._name, "partitions": 2},
                "stream": {
                    "checkpoint": str(self._checkpoint),
                    "max_offsets_per_trigger": self._random.choice((300, 1000, 5000)),
                },
            }
        )
        self.follower.start()

    def _end(self) -> None:
        if self.follower is not None:
            self.follower.abandon()
            self.follower = None

    def _delete_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._ground.kafka.bootstrap, "log_level": 2})
        with suppress(KafkaException):
            topics = [topic for topic in admin.list_topics(timeout=10).topics if topic.startswith(f"{self._name}.")]
            for future in admin.delete_topics(topics, operation_timeout=10).values() if topics else ():
                with suppress(KafkaException):
                    future.result(15)

    # -- what it does

    def random_programs(self, seeds: Iterable[int], kinds: Callable[[int], Kinds], statements: int) -> list[Found]:
        """Programs of these seeds, several at once, with kills in between."""
        works: list[Work] = [
            lambda writer, seed=seed: writer.write(seed, kinds(seed), statements)  # type: ignore[misc]
            for seed in seeds
        ]
        return self.run(works, kills=True)

    def run(self, works: Sequence[Work], *, kills: bool) -> list[Found]:
        """Each work in a keyspace of its own; then everything is compared, comes again from the beginning, and is
        compared again; and once more from the log by the short way."""
        writers = [Writer(self._source, f"{self._name}_{self._next()}") for _ in works]
        with self._killing(kills), ThreadPoolExecutor(3, thread_name_prefix="writer") as pool:
            programs = list(pool.map(lambda pair: pair[0](pair[1]), zip(works, writers, strict=True)))
            self.mark()
        found = [Found(writer.keyspace, program) for writer, program in zip(writers, programs, strict=True)]
        answers = self._ask(writers)
        self.settle()
        self._compare(found, answers, "stream")
        self._short_way(found, answers, writers)
        assert self.follower is not None
        self.follower.stop()
        self._follow()
        self.settle()
        self._compare(found, answers, "again")
        for writer in writers:
            writer.drop()
        return found

    def fail(self, programs: Sequence[Program], *, short: bool) -> list[bool]:
        """Which of these programs still differ, by the short way alone or by the stream alone; no kills."""
        begun = {path.name for path in self.links.paths()[:-2]}
        writers = [Writer(self._source, f"{self._name}_{self._next()}") for _ in programs]
        for writer, program in zip(writers, programs, strict=True):
            writer.repeat(program)
        self.mark()
        found = [Found(writer.keyspace, program) for writer, program in zip(writers, programs, strict=True)]
        answers = self._ask(writers)
        self.settle()
        if short:
            self._short_way(found, answers, writers, begun)
        else:
            self._compare(found, answers, "stream")
        for writer in writers:
            writer.drop()
        return [not one.equal for one in found]

    def _next(self) -> int:
        self._serial += 1
        return self._serial

    @contextmanager
    def _killing(self, active: bool) -> Iterator[None]:
        """While inside, kill -9 of an agent or the stream at random moments."""
        over = threading.Event()
        failed: list[BaseException] = []

        def run() -> None:
            try:
                while not over.wait(self._random.uniform(2, 9)):
                    self._kill_one()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=run, name="killer")
        if active:
            thread.start()
        try:
            yield
        finally:
            over.set()
            if active:
                thread.join()
        if failed:
            raise failed[0]

    def _kill_one(self) -> None:
        if self._random.random() < 0.3:
            assert self.follower is not None
            self.follower.kill()
            self.follower.start()
            self.kills["stream"] += 1
        else:
            self.kills["agent"] += 1
            agent = self._random.choice(self.agents)
            agent.kill()
            agent.start()

    def mark(self) -> None:
        """A row behind everything that was written; `settle` waits for it."""
        self._marked += 1
        self._ground.session.execute(f"INSERT INTO {self._marks} (k) VALUES ({self._marked})")

    def settle(self) -> None:
        """Wait until every agent has published, and the stream has written, all that is before the last mark."""
        for agent in self.agents:
            agent.until_ready(120)
        config: dict[str, bool | int | float | str] = {"bootstrap.servers": self._ground.kafka.bootstrap}
        assert self._marks is not None
        topic = table_topic(self._name, self._home, "marks", self._marks.id)
        copies, seen = self._marked * len(self.agents), 0
        with TopicReader(config, topic, beginning=True) as reader:

            def published() -> bool:
                nonlocal seen
                seen += sum(record.value is not None for _, record in reader.read_to_end())
                return seen >= copies

            assert wait_until(published, _SETTLE_SECONDS), self.agents[0].words()
        assert seen == copies, f"{seen} records of {self._marked} marks"
        ends = self._ends()
        checkpoint = Checkpoint(self._checkpoint)

        def written() -> bool:
            assert self.follower is not None
            self.follower.check()
            there = checkpoint.ends()
            return all(there.get(place, 0) >= end for place, end in ends.items())

        assert wait_until(written, _SETTLE_SECONDS), "the stream does not come to the topics' ends"

    def _ends(self) -> dict[tuple[str, int], int]:
        """The offset behind the last record of every partition of the tables' topics."""
        admin = AdminClient({"bootstrap.servers": self._ground.kafka.bootstrap})
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client types only some of itself
        places = {
            TopicPartition(name, number): latest
            for name, topic in admin.list_topics(timeout=30).topics.items()
            if name.startswith(f"{self._name}.{self._name}")
            for number in topic.partitions
        }
        found = admin.list_offsets(places)
        return {(place.topic, place.partition): future.result(30).offset for place, future in found.items()}

    def _ask(self, writers: Iterable[Writer]) -> dict[str, list[Answer]]:
        """What SELECT answers, once nothing is near its expiry."""
        due = max(writer.finished for writer in writers) + _NEAREST_EXPIRY
        wait_until(lambda: time.time() > due, _NEAREST_EXPIRY + 1)
        return {writer.keyspace: ask(self._ground.reading, writer.present) for writer in writers}

    def _compare(self, found: Iterable[Found], answers: Mapping[str, list[Answer]], way: str) -> None:
        """Note how the stream's databases differ. What has expired may still be about to be swept."""
        for one in found:
            for name, database in self._databases.items():
                told = list[Difference]()

                def equal(one: Found = one, database: Downstream = database) -> bool:
                    nonlocal told
                    told = differences(answers[one.keyspace], database)
                    return not told

                wait_until(equal, _SWEEP_SECONDS if self._sweeps else 0)
                told += [Difference(topic, (), reason) for topic, reason in self._dead(one, database)]
                one.differences[f"{way}, {name}"] = told

    _sweeps = False

    def _dead(self, one: Found, database: Downstream) -> list[tuple[str, str]]:
        return [(topic, reason) for topic, reason in database.set_aside() if f".{one.keyspace}." in topic]

    def _short_way(
        self,
        found: Iterable[Found],
        answers: Mapping[str, list[Answer]],
        writers: Iterable[Writer],
        skipped: Container[str] = (),
    ) -> None:
        """The same programs from the segments into other databases, in any order, a part of it twice."""
        tables = {id: table for writer in writers for id, table in writer.tables.items()}
        changes = changes_by_keyspace([path for path in self.links.paths() if path.name not in skipped], tables)
        for one in found:
            one.changes = len(changes[one.keyspace])
            one.rows = sum(len(answer.rows) for answer in answers[one.keyspace])
            url = f"sqlite:///{self._place / f'{one.keyspace}.db'}"
            with closing(open_sinks([url])) as sink, closing(Downstream(url)) as database:
                deliver(sink, changes[one.keyspace], Random(one.program.seed))
                told = differences(answers[one.keyspace], database)
                told += [Difference(topic, (), reason) for topic, reason in database.set_aside()]
                one.differences["short, sqlite"] = told


def stream_settings(sections: Sections) -> Settings:
    """The settings that a trial's sections make."""
    return Settings.model_validate(sections)
