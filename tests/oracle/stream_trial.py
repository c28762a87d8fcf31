"""The long way: agents beside the nodes, Kafka, the stream; killed meanwhile, and read once more from the beginning."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # its __all__ forgets it

from tailrace.demo.flow import committed_ends
from tailrace.local import LocalCassandra
from tailrace_common.kafka import TopicReader
from tailrace_schemas.topics import table_topic
from tests.integration.agents import AgentProcess, settings_for, start_here
from tests.oracle.comparison import Answer, Downstream
from tests.oracle.following import Follower, Sections
from tests.oracle.trial import SECONDS, Found, Ground, Trial, compared
from tests.oracle.writing import Writer
from tests.support.waiting import until

MakeFollower = Callable[[Sections], Follower]
"""Makes a stream with these settings, and with the trial's databases for its sinks."""

_PARTITIONS = 2
_LOOK_SECONDS = 0.2


class StreamTrial(Trial):
    """A trial with agents and a stream of its own, which follow it into databases; and the short way beside it."""

    def __init__(
        self,
        ground: Ground,
        name: str,
        place: Path,
        urls: Sequence[str],
        direct: Callable[[str], str],
        follower: MakeFollower,
        random: Random,
    ) -> None:
        super().__init__(ground, name, place, direct, random)
        self._make = follower
        self._databases = [Downstream(url) for url in urls]
        self._runs = 0
        self._way = "stream"
        self.kills: Counter[str] = Counter()

    def _set_up(self, stack: ExitStack) -> None:
        super()._set_up(stack)
        ground = self._ground
        for node in ground.nodes:
            start_here(ground.session, node, ground.kafka, self._name, self._home)
        stack.callback(self._delete_topics)
        for database in self._databases:
            stack.callback(database.close)
        self.agents = [
            stack.enter_context(AgentProcess(self._place, self._agent_settings(node), f"agent{number}"))
            for number, node in enumerate(ground.nodes)
        ]
        self.follower = self._follow()
        stack.callback(lambda: self.follower.abandon())

    def _agent_settings(self, node: LocalCassandra) -> dict[str, dict[str, object]]:
        settings = settings_for(node, self._ground.kafka, self._name)
        settings["tables"]["include"] = [f"{self._name}_*.*"]
        settings["topics"]["partitions"] = _PARTITIONS
        settings["generations"] = {"ring_delay_seconds": 5, "poll_seconds": 2}
        return settings

    def _follow(self) -> Follower:
        """A stream from the topics' beginning on, started."""
        self._runs += 1
        self._checkpoint = self._place / f"checkpoint{self._runs}"
        most = self._random.choice((2_000, 20_000, 50_000))
        follower = self._make(
            {
                "kafka": {"bootstrap.servers": self._ground.kafka.bootstrap},
                "topics": {"prefix": self._name, "partitions": _PARTITIONS},
                "stream": {"snapshot": "never", "checkpoint": str(self._checkpoint), "max_offsets_per_trigger": most},
            }
        )
        follower.start()
        return follower

    def _delete_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._ground.kafka.bootstrap, "log_level": 2})
        with suppress(KafkaException):
            topics = [topic for topic in admin.list_topics(timeout=60).topics if topic.startswith(f"{self._name}.")]
            for future in admin.delete_topics(topics, operation_timeout=30).values() if topics else ():
                with suppress(KafkaException):
                    future.result(60)

    def _judge(self, found: Sequence[Found], answers: Mapping[str, list[Answer]], writers: Sequence[Writer]) -> None:
        self._compare(found, answers)
        self._step("the stream")
        super()._judge(found, answers, writers)
        self.follower.stop()
        self.follower = self._follow()
        self._way = "again"
        self._compare(found, answers)
        self._step("once more")

    def _compare(self, found: Sequence[Found], answers: Mapping[str, list[Answer]]) -> None:
        """Note how the stream's databases differ, once they have everything."""
        self._settle()
        for one in found:
            for database in self._databases:
                told = list(compared(one, answers[one.keyspace], database))
                one.differences[f"{self._way}, {database.kind}"] = told

    @contextmanager
    def _disturbing(self) -> Iterator[None]:
        """While inside, kill -9 of an agent or the stream, wherever the programs are, a few times."""
        over = threading.Event()
        with ThreadPoolExecutor(1, thread_name_prefix="disturber") as pool:
            disturbing = pool.submit(self._disturb, over)
            try:
                yield
            finally:
                over.set()
        disturbing.result()

    def _disturb(self, over: threading.Event) -> None:
        due = self._random.uniform(0.03, 0.2)
        while not over.wait(_LOOK_SECONDS):
            if self.progress >= due:
                self._kill_one()
                due = self.progress + self._random.uniform(0.03, 0.2)

    def _kill_one(self) -> None:
        if self._random.random() < 0.3:
            self.follower.kill()
            self.follower.start()
            self.kills["stream"] += 1
        else:
            agent = self._random.choice(self.agents)
            agent.kill()
            agent.start()
            self.kills["agent"] += 1

    def _settle(self) -> None:
        """Wait until every agent has published, and the stream has written, all that is before the last mark."""
        for agent in self.agents:
            agent.until_ready(SECONDS)
        config: dict[str, bool | int | float | str] = {"bootstrap.servers": self._ground.kafka.bootstrap}
        topic = table_topic(self._name, self._home, "marks", self.marks.id)
        copies, seen = self._marked * len(self.agents), 0
        admin = AdminClient({"bootstrap.servers": self._ground.kafka.bootstrap})
        until(lambda: topic in admin.list_topics(timeout=60).topics, topic, SECONDS, state=self.agents[0].words)
        with TopicReader(config, topic, beginning=True) as reader:

            def published() -> bool:
                nonlocal seen
                seen += sum(record.value is not None for _, record in reader.read_to_end())
                return seen >= copies

            until(published, f"{copies} records", SECONDS, state=self.agents[0].words)
        assert seen == copies, f"{seen} records of {self._marked} marks"
        self._until_written(self._ends())

    def _until_written(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Wait until the stream has committed all up to these offsets; it has its time as long as it goes on."""
        there = committed_ends(self._checkpoint)

        def has_moved() -> bool:
            self.follower.check()
            return committed_ends(self._checkpoint) != there

        while behind := {place: (there.get(place), end) for place, end in ends.items() if there.get(place, 0) < end}:
            what = f"progress of the stream, which is before the topics' ends: {behind}"
            until(has_moved, what, SECONDS, state=self.follower.words)
            there = committed_ends(self._checkpoint)

    def _ends(self) -> dict[tuple[str, int], int]:
        """The offset behind the last record of every partition of the tables' topics."""
        admin = AdminClient({"bootstrap.servers": self._ground.kafka.bootstrap})
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client types only some of itself
        places = {
            TopicPartition(name, number): latest
            for name, topic in admin.list_topics(timeout=60).topics.items()
            if name.startswith(f"{self._name}.{self._name}")
            for number in topic.partitions
        }
        found = admin.list_offsets(places)
        return {(place.topic, place.partition): future.result(60).offset for place, future in found.items()}
