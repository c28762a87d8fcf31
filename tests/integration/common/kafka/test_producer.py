"""A producer on a real Kafka whose partition has a new leader: what it refuses is not lost by what it takes next."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tailrace.local import LocalKafka
from tailrace.local.kafka import KafkaSettings
from tailrace.local.ports import free_port
from tailrace_common.kafka import KafkaProducer, KafkaTransactions, Outgoing, Sizes, TopicReader
from tailrace_common.kafka.topics import TopicMaker
from tailrace_common.kafka.transactions import KafkaAppends
from tailrace_schemas.errors import ServiceError
from tests.services.proxy import Proxy

TIMEOUT = 10
PRODUCE = 0
NOT_LEADER = 6
BATCH = 1000
# How long a refusal waits for the batch behind it, which is under way at once or waits for this one.
PATIENCE = 1.0


@dataclass(frozen=True)
class One:
    """A record of more than half a batch."""

    topic: str
    partition: int
    number: int
    key: bytes | None = None
    value: bytes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", b"%d " % self.number + b"." * (BATCH * 2 // 3))


class NewLeader(Proxy):
    """Refuses the first batch for `topic`, as a leader does that does not know yet that it is one.

    Its answer comes when the next batch has gone by, or when none does.
    """

    topic = b"-"
    overtaken = False
    """Whether the next batch had gone by when the last one that was refused got its answer."""
    _next: asyncio.Event | None = None

    def refuse_one(self, topic: str) -> None:
        """The next batch for this topic, of which nothing was sent yet."""
        self.topic, self._next = topic.encode(), None

    async def _ask(
        self, client: asyncio.StreamReader, server: asyncio.StreamWriter, answers: asyncio.StreamWriter
    ) -> None:
        while True:
            head = await client.readexactly(4)
            request = await client.readexactly(int.from_bytes(head))
            api, version, correlation = struct.unpack_from(">hhi", request)
            if api == PRODUCE and self.topic in request:
                if self._next is None:
                    assert version == 10, "the answer below is of version 10"
                    self._next = asyncio.Event()
                    self._tasks.add(asyncio.ensure_future(self._refuse_batch(correlation, answers, self._next)))
                    continue
                self._next.set()
            server.write(head + request)
            await server.drain()

    async def _refuse_batch(self, correlation: int, answers: asyncio.StreamWriter, next: asyncio.Event) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(next.wait(), PATIENCE)
        self.overtaken = next.is_set()
        partition = struct.pack(">ihqqq", 0, NOT_LEADER, -1, -1, -1) + b"\x01\x00\x00"
        topics = b"\x02" + bytes([len(self.topic) + 1]) + self.topic + b"\x02" + partition + b"\x00"
        answer = struct.pack(">i", correlation) + b"\x00" + topics + struct.pack(">i", 0) + b"\x00"
        answers.write(struct.pack(">i", len(answer)) + answer)
        await answers.drain()


class Desk:
    """A broker that clients reach by way of such a proxy."""

    def __init__(self, directory: Path) -> None:
        address = "127.0.0.1"
        port, controller, inner = free_port(address), free_port(address), free_port(address)
        self.proxy = NewLeader((address, port))
        self.kafka = LocalKafka(
            directory,
            KafkaSettings(
                port=port,
                controller_port=controller,
                properties={
                    "listeners": f"PLAINTEXT://{address}:{port},CONTROLLER://{address}:{controller},"
                    f"INTERNAL://{address}:{inner}",
                    "advertised.listeners": f"PLAINTEXT://{address}:{self.proxy.port},INTERNAL://{address}:{inner}",
                    "inter.broker.listener.name": "INTERNAL",
                    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
                },
            ),
        )
        self.config: dict[str, bool | int | float | str] = {
            "bootstrap.servers": f"{self.proxy.address}:{self.proxy.port}"
        }

    def producer(
        self,
        topic: str,
        exactly: bool,
        clock: Callable[[], float] = time.monotonic,
        config: Mapping[str, bool | int | float | str] | None = None,
    ) -> KafkaProducer:
        """One of small batches."""
        sizes, config = Sizes(limits={topic: BATCH}), config or self.config
        if not exactly:
            return KafkaAppends(config, clock=clock, timeout=TIMEOUT, sizes=sizes)
        return KafkaTransactions(config, topic, topic, clock=clock, timeout=TIMEOUT, sizes=sizes, fenced="fenced")

    def numbers(self, topic: str) -> list[int]:
        """The records that readers have."""
        with TopicReader(self.config, topic, beginning=True) as reader:
            return [int((record.value or b"").split()[0]) for _, record in reader.read_to_end()]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    desk = Desk(tmp_path_factory.mktemp("desk") / "kafka")
    with desk.proxy:
        desk.kafka.start()
        yield desk
        desk.kafka.stop()


@pytest.mark.parametrize("exactly", [True, False])
def test_records_are_compressed_unless_kafka_s_settings_say_otherwise(desk: Desk, exactly: bool) -> None:
    room = {}
    for compression in ("lz4", "none"):
        topic = f"compressed-{exactly}-{compression}"
        TopicMaker(desk.config).ensure(topic, 1, {})
        config = desk.config if compression == "lz4" else {**desk.config, "compression.type": compression}
        with closing(desk.producer(topic, exactly, config=config)) as producer:
            producer.open()
            producer.send_all([One(topic, 0, number) for number in range(50)])
            producer.acknowledge()
        room[compression] = sum(file.stat().st_size for file in desk.kafka.directory.rglob(f"{topic}-0/*.log"))
    assert 0 < room["lz4"] < room["none"] / 2


@pytest.mark.promise("agent.refused-is-not-delivered", "agent.log-order")
@pytest.mark.parametrize("exactly", [True, False])
@pytest.mark.parametrize("together", [True, False])
def test_a_leader_that_is_new_loses_nothing(desk: Desk, exactly: bool, together: bool) -> None:
    topic = f"orders-{exactly}-{together}"
    TopicMaker(desk.config).ensure(topic, 1, {})
    desk.proxy.refuse_one(topic)
    records: Sequence[Outgoing] = [One(topic, 0, number) for number in range(4)]
    with closing(desk.producer(topic, exactly)) as producer, suppress(ServiceError):  # what is missing is told below
        producer.open()
        if together:
            producer.send_all(records)
        else:
            for record in records:
                producer.send(record)
        producer.end()
    # Whether the broker takes a batch that overtakes the first one depends on its version and on chance.
    assert not desk.proxy.overtaken
    assert desk.numbers(topic) == [0, 1, 2, 3]


@pytest.mark.promise("agent.refused-is-not-delivered", "agent.log-order")
@pytest.mark.parametrize("exactly", [True, False])
@pytest.mark.parametrize("together", [True, False])
def test_after_two_hours_a_partition_gets_one_record_first_again(desk: Desk, exactly: bool, together: bool) -> None:
    """A broker forgets producers that wrote nothing for long: the first batch is answered before the next one goes."""
    topic, ahead = f"later-{exactly}-{together}", 0.0
    TopicMaker(desk.config).ensure(topic, 1, {})
    with closing(desk.producer(topic, exactly, lambda: time.monotonic() + ahead)) as producer:
        producer.open()
        producer.send_all([One(topic, 0, number) for number in range(4)])
        producer.end()
        ahead = 2 * 3600.0
        desk.proxy.refuse_one(topic)
        records: Sequence[Outgoing] = [One(topic, 0, number) for number in range(4, 8)]
        with suppress(ServiceError):  # what is missing is told below
            if together:
                producer.send_all(records)
            else:
                for record in records:
                    producer.send(record)
            producer.end()
    assert not desk.proxy.overtaken
    assert desk.numbers(topic) == list(range(8))
