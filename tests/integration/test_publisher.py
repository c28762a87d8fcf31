"""The publisher on a real Kafka that ends its transactions, goes away, or refuses."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from random import Random
from uuid import UUID, uuid4

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __all__ forgets most
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from tailrace.local import LocalKafka
from tailrace.local.kafka import KafkaSettings
from tailrace.publish.kafka import KafkaPublisher, KafkaTopics, Tenure
from tailrace.publish.kafka.publisher import Delivery
from tailrace.publish.offsets import OffsetsError, OffsetsLostError, parked_key
from tailrace.publish.record import Record
from tailrace.state import Resume
from tailrace_common.kafka import Sizes, TopicReader
from tailrace_common.settings import TopicSettings
from tailrace_common.tracing.spans import TRACEPARENT
from tailrace_schemas.errors import FencedError, RefusedError, ServiceError, SettingsError, TailraceError
from tailrace_schemas.position import Position
from tailrace_schemas.progress import Progress, encode_progress, progress_key
from tailrace_schemas.topics import Internal
from tests.integration.agents import raw_records
from tests.support.waiting import let_pass, until

Config = dict[str, bool | int | float | str]
HEADERS = ((TRACEPARENT, f"00-{'1' * 32}-{'2' * 16}-01".encode()),)
INTERNAL = (Internal.OFFSETS, Internal.SCHEMA_HISTORY, Internal.PROGRESS)


class Desk:
    """A prefix with one table's topic, and publishers for one host."""

    def __init__(self, kafka: LocalKafka, prefix: str) -> None:
        self.kafka = kafka
        self.prefix = prefix
        self.config: Config = {"bootstrap.servers": kafka.bootstrap}
        self.options = TopicSettings(prefix=prefix, partitions=3)
        self.topics = KafkaTopics(self.config, self.options)
        self.topics.ensure_internal(INTERNAL)
        self.topic = f"{prefix}.ks.t"
        self.topics.ensure_table(self.topic)

    def publisher(
        self,
        tenure: Tenure | None = None,
        *,
        timeout: int = 10,
        delivery: Delivery = "exactly-once",
        sizes: Sizes | None = None,
    ) -> KafkaPublisher:
        """One for the host; not started."""
        return KafkaPublisher(
            self.config,
            prefix=self.prefix,
            cluster="c",
            host="h",
            clock=time.monotonic,
            timeout=timeout,
            tenure=tenure or Tenure(uuid4().hex),
            delivery=delivery,
            sizes=sizes or Sizes(limits=self.topics.limits),
            verify=self.topics.require_unchanged,
        )

    def record(self, number: int, topic: str | None = None) -> Record:
        """One whose value is a number."""
        return Record(topic or self.topic, number % 3, None, str(number).encode())

    def values(self) -> Counter[int]:
        """What a read_committed reader has of the topic."""
        with TopicReader(self.config, self.topic, beginning=True) as reader:
            return Counter(int(record.value or b"") for _, record in reader.read_to_end())


@pytest.fixture
def desk(kafka: LocalKafka, prefix: str) -> Desk:
    return Desk(kafka, prefix)


def at(number: int) -> Resume:
    return Resume(Position(1, 1, number))


def commit(publisher: KafkaPublisher, desk: Desk, number: int, topic: str | None = None) -> None:
    """A transaction of one record."""
    publisher.send(desk.record(number, topic))
    publisher.commit(at(number))


def go_on(desk: Desk, tenure: Tenure, upto: int, *, timeout: int = 10) -> None:
    """As the run loop does: from what Kafka has, with new producers, until it is done."""

    def attempt() -> bool:
        with closing(desk.publisher(tenure, timeout=timeout)) as publisher:
            try:
                resume = publisher.start()
                done = -1 if resume.position is None else resume.position.offset
                for number in range(done + 1, upto):
                    publisher.send(desk.record(number))
                if done < upto - 1:
                    publisher.commit(at(upto - 1))
            except ServiceError:
                return False
            return True

    until(attempt, "a commit", 90)


@pytest.mark.spine
@pytest.mark.promise("agent.ended-transaction", "agent.kafka-stands-still")
def test_a_transaction_that_kafka_ended_is_done_again(desk: Desk) -> None:
    """Open for longer than its limit: an error, not a fence; a new producer goes on, nothing is lost or twice."""
    tenure = Tenure("me")
    with closing(desk.publisher(tenure, timeout=2)) as publisher:
        assert publisher.start() == Resume()
        for number in range(10):
            publisher.send(desk.record(number))
        publisher.commit(at(9))
        publisher.send(desk.record(10))
        # Kafka ends it a second after its limit at the latest; before, the commit would come through.
        let_pass(5, "the transaction's limit")
        with pytest.raises(TailraceError, match="Kafka") as ended:
            publisher.commit(at(10))
        assert isinstance(ended.value, ServiceError)
    go_on(desk, tenure, 20, timeout=2)
    assert desk.values() == Counter(range(20))


@pytest.mark.spine
@pytest.mark.promise("agent.one-per-node")
def test_another_agent_ends_the_older_one_and_stays(desk: Desk) -> None:
    """The older one is told at its next commit; and, had its producer failed meanwhile, at its next start, which
    leaves the newer one's place untouched."""
    older, newer = Tenure("older"), Tenure("newer")
    with closing(desk.publisher(older)) as first, closing(desk.publisher(newer)) as second:
        first.start()
        first.send(desk.record(0))
        first.commit(at(0))
        assert second.start() == at(0)
        with pytest.raises(FencedError, match="another agent started"):
            commit(first, desk, 1)
    with closing(desk.publisher(older)) as again, pytest.raises(FencedError, match="could not publish"):
        again.start()
    go_on(desk, newer, 5)
    assert desk.values() == Counter(range(5))


@pytest.mark.promise("agent.one-per-node")
def test_an_older_agent_that_takes_its_id_back_does_not_end_the_newer_one(desk: Desk) -> None:
    """Its producer failed for another reason while the newer one took the id, so that nobody told it to end."""
    older, newer = Tenure("older"), Tenure("newer")
    with closing(desk.publisher(older)) as first:
        first.start()
        commit(first, desk, 0)
    with closing(desk.publisher(newer)) as starting, closing(desk.publisher(older)) as again:
        starting.open()
        assert again.start() == at(0)
        with pytest.raises(ServiceError, match="no newer user"):
            starting.commit(at(0))
        go_on(desk, newer, 5)
        with pytest.raises(FencedError, match="another agent started"):
            commit(again, desk, 1)
    assert desk.values() == Counter(range(5))


@pytest.mark.promise("agent.moved-by-hand")
@pytest.mark.parametrize("forget", [False, True])
def test_who_moves_a_host_by_hand_ends_its_agent(desk: Desk, forget: bool) -> None:
    """As another agent would: the position that was set, or forgotten, is not written over."""
    tenure = Tenure("agent")
    with closing(desk.publisher(tenure)) as agent, closing(desk.publisher(Tenure("by hand"))) as hand:
        agent.start()
        commit(agent, desk, 7)
        assert hand.start() == at(7)
        if forget:
            hand.forget()
        else:
            hand.commit(at(3))
        with pytest.raises(FencedError):
            commit(agent, desk, 8)
    with closing(desk.publisher(tenure)) as again, pytest.raises(FencedError):
        again.start()
    with closing(desk.publisher(Tenure("next"))) as later:
        assert later.start() == (Resume() if forget else at(3))


def test_a_retired_host_leaves_no_lot_also_where_one_cannot_be_read(desk: Desk) -> None:
    """Else no agent could start under its id again: its record would be unreadable for ever."""
    with closing(desk.publisher()) as publisher:
        publisher.start()
        publisher.note(Internal.OFFSETS, parked_key("c", "h", (1, 5, UUID(int=1), 10)), b"{}")
        commit(publisher, desk, 7)
    with closing(desk.publisher()) as agent, pytest.raises(OffsetsError, match="not one of ours"):
        agent.start()
    with closing(desk.publisher()) as hand:
        hand.open()
        hand.forget()
    with closing(desk.publisher()) as publisher:
        assert publisher.start() == Resume()


@pytest.mark.spine
@pytest.mark.promise("agent.deleted-offsets")
def test_a_host_whose_record_was_deleted_does_not_begin_again(desk: Desk) -> None:
    """`.progress` has the host's position. A retired host may begin again."""
    told = Progress("c", "h", Position(1, 1, 7), Position(1, 1, 7), 1_700_000_000_000)
    with closing(desk.publisher()) as publisher:
        publisher.start()
        publisher.note(Internal.PROGRESS, progress_key("c", "h"), encode_progress(told))
        commit(publisher, desk, 7)
    delete_offsets(desk)
    for delivery in DELIVERIES:
        with closing(desk.publisher(delivery=delivery)) as publisher, pytest.raises(OffsetsLostError, match="1/1:7"):
            publisher.start()
    with closing(desk.publisher()) as hand:
        assert hand.start(lost=True) == Resume()
        hand.forget()
    delete_offsets(desk)
    with closing(desk.publisher()) as publisher:
        assert publisher.start() == Resume()


DELIVERIES: tuple[Delivery, ...] = ("exactly-once", "at-least-once")


def delete_offsets(desk: Desk) -> None:
    """Delete all records of `.offsets`, which Kafka refuses for compacted topics."""
    admin, topic = AdminClient({"bootstrap.servers": desk.kafka.bootstrap}), f"{desk.prefix}.offsets"

    def policy(value: str) -> None:
        entry = ConfigEntry("cleanup.policy", value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(60)

    policy("delete")
    partitions = admin.list_topics(topic, timeout=60).topics[topic].partitions
    ends = {TopicPartition(topic, number, -1): None for number in partitions}

    def deleted() -> bool:
        try:
            return all(future.result(60) is not None for future in admin.delete_records(list(ends)).values())
        except KafkaException:  # the broker does not know the new policy yet
            return False

    until(deleted, "the deletion of the records")
    policy("compact")


@pytest.mark.parametrize("timeout", [1, 3])
def test_a_deleted_topic_is_named(desk: Desk, timeout: int) -> None:
    """The error says which, so that the others can go on, whether its records or the commit time out first."""
    other = f"{desk.prefix}.ks.other"
    desk.topics.ensure_table(other)
    with closing(desk.publisher(timeout=timeout)) as publisher:
        publisher.start()
        publisher.send(desk.record(0, other))
        publisher.commit(at(0))
        admin = AdminClient({"bootstrap.servers": desk.kafka.bootstrap})
        admin.delete_topics([other])[other].result(60)

        def load() -> None:
            for number in range(1, 100):
                publisher.send(desk.record(number))
                commit(publisher, desk, number, other)

        with pytest.raises(RefusedError, match=r"ks\.other") as refused:
            load()
        assert refused.value.topic == other


def test_a_topic_that_takes_small_batches_only(desk: Desk) -> None:
    """Its owner's limit bounds the producer's batches, from the next producer on; what does not fit is named."""
    small = f"{desk.prefix}.ks.small"
    admin = AdminClient({"bootstrap.servers": desk.kafka.bootstrap})
    with closing(desk.publisher(sizes=Sizes(limits=desk.topics.limits))) as publisher:
        publisher.start()
        desk.topics.ensure_table(small)
        limit = ConfigEntry("max.message.bytes", "20000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, small, incremental_configs=[limit])
        admin.incremental_alter_configs([resource])[resource].result(60)

        def limited() -> bool:  # a broker learns of a change a moment after the controller has confirmed it
            desk.topics.ensure_table(small)
            return desk.topics.limit(small) == 20000

        until(limited, "the topic's new limit")
        with pytest.raises(ServiceError, match="smaller batches"):
            publisher.send(desk.record(0, small))
    with closing(desk.publisher()) as publisher:
        publisher.start()
        for _ in range(500):
            publisher.send(Record(small, 0, None, b"x" * 1000))
        publisher.commit(at(0))
        publisher.send(Record(small, 0, None, Random(1).randbytes(30000)))
        with pytest.raises(RefusedError) as refused:
            publisher.commit(at(1))
        assert refused.value.topic == small


@pytest.mark.promise("agent.unfit-topics")
def test_partitions_added_while_it_runs(desk: Desk) -> None:
    """Said with advice, also where the topic is ensured again before anybody looks, as with each DDL of its table."""
    desk.topics.require_unchanged()
    admin = AdminClient({"bootstrap.servers": desk.kafka.bootstrap})
    admin.create_partitions([NewPartitions(desk.topic, 5)])[desk.topic].result(60)

    until(lambda: KafkaTopics(desk.config, desk.options).ensure_table(desk.topic) == 5, "the new partitions")
    for verify in (partial(desk.topics.ensure_table, desk.topic), desk.topics.require_unchanged):
        with pytest.raises(SettingsError, match="has 5 partitions, and had 3"):
            verify()


@pytest.mark.promise("agent.unfit-topics")
def test_a_lost_race_for_a_topic_is_success_unless_it_harms(desk: Desk) -> None:
    """Many agents make the same topic at once: all have it. One that its maker compacts would lose deltas: refused."""
    name, many = f"{desk.prefix}.ks.raced", [KafkaTopics(desk.config, desk.options) for _ in range(6)]
    with ThreadPoolExecutor(len(many)) as pool:
        assert list(pool.map(lambda topics: topics.ensure_table(name), many)) == [3] * len(many)
    compacted = f"{desk.prefix}.ks.compacted"
    admin = AdminClient({"bootstrap.servers": desk.kafka.bootstrap})
    admin.create_topics([NewTopic(compacted, 3, 1, config={"cleanup.policy": "compact"})])[compacted].result(60)
    with pytest.raises(SettingsError, match=r"cleanup\.policy=compact; it needs delete"):
        desk.topics.ensure_table(compacted)


@pytest.mark.spine
@pytest.mark.promise("agent.deleted-topic")
def test_a_topic_that_was_deleted_under_the_agent_is_said(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """As a warning that names it, and once: it was made in silence, as a new table's is."""
    admin = AdminClient({"bootstrap.servers": desk.kafka.bootstrap})
    admin.delete_topics([desk.topic])[desk.topic].result(60)
    until(lambda: desk.topic not in desk.topics.survey()[0], "the topic to be gone")
    assert desk.topics.ensure_table(desk.topic) == 3
    assert desk.topics.ensure_table(desk.topic) == 3
    # Not `record.message`: a record that no handler has formatted yet has none.
    news = [record for record in caplog.records if f"topic {desk.topic} was deleted" in record.getMessage()]
    assert [record.levelname for record in news] == ["WARNING"]


@pytest.mark.promise("agent.unfit-topics")
def test_the_number_of_partitions_is_looked_at_now_and_then(desk: Desk) -> None:
    """After a commit, every half a minute; what the look says ends the publisher."""
    now = [0.0]
    looks: list[float] = []

    def look() -> None:
        looks.append(now[0])
        if len(looks) == 2:
            raise SettingsError("5 partitions")

    publisher = KafkaPublisher(
        desk.config, prefix=desk.prefix, cluster="c", host="h", clock=lambda: now[0], verify=look
    )
    with closing(publisher):
        publisher.start()
        for now[0] in range(0, 45, 5):
            commit(publisher, desk, 1)
        now[0] = 60
        with pytest.raises(SettingsError, match="5 partitions"):
            commit(publisher, desk, 2)
    assert looks == [30, 60]


@pytest.mark.promise("agent.at-least-once")
def test_without_transactions_everything_arrives(desk: Desk) -> None:
    """In the order changes, notes, offsets; a producer that dies before the offsets leaves what is sent again."""
    tenure = Tenure("me")
    with closing(desk.publisher(tenure, delivery="at-least-once")) as publisher:
        assert publisher.start() == Resume()
        for number in range(5):
            publisher.send(desk.record(number))
        publisher.note(Internal.PROGRESS, b"c/h", b"5")
        publisher.commit(at(4))
        for number in range(5, 8):
            publisher.send(desk.record(number))
        publisher.history()
    with closing(desk.publisher(tenure, delivery="at-least-once")) as publisher:
        assert publisher.start() == at(4)
        for number in range(5, 10):
            publisher.send(desk.record(number))
        publisher.commit(at(9))
    assert set(desk.values()) == set(range(10))
    assert desk.values()[6] in (1, 2), "those that Kafka had at the end of the first come twice"
    with TopicReader(desk.config, f"{desk.prefix}.progress", beginning=True) as reader:
        assert [record.value for _, record in reader.read_to_end()] == [b"5"]


def test_a_record_for_which_the_header_has_no_room_has_none(desk: Desk) -> None:
    """The table is not parked for the sake of a trace."""
    limit = desk.topics.limit(desk.topic)
    largest = b"0" * (limit - 128)  # as the router lets it pass
    sizes = Sizes(largest=limit, limits=desk.topics.limits)
    with closing(desk.publisher(sizes=sizes)) as publisher:
        publisher.start()
        publisher.send_all([Record(desk.topic, 0, None, value) for value in (b"1", largest, b"2")], HEADERS)
        publisher.commit(at(1))
    messages = raw_records(desk.kafka, desk.topic)
    assert [len(message.value() or b"") for message in messages] == [1, len(largest), 1]
    assert [message.headers() for message in messages] == [list(HEADERS), None, list(HEADERS)]


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """One to restart and to stop."""
    with LocalKafka(tmp_path_factory.mktemp("kafka"), KafkaSettings(heap_mib=256)) as kafka:
        yield kafka


@pytest.mark.promise("agent.bounded-memory")
def test_a_buffer_that_stays_full_is_said(own_kafka: LocalKafka, prefix: str) -> None:
    """Kafka stopped: no more than the buffer is taken, then an error; afterwards everything arrives once."""
    desk, tenure = Desk(own_kafka, prefix), Tenure("me")
    sizes = Sizes(buffer=1 << 20, largest=1 << 19)
    with closing(desk.publisher(tenure, timeout=4, sizes=sizes)) as publisher:
        publisher.start()
        publisher.send(Record(desk.topic, 0, None, b"the first of a partition waits for Kafka"))
        os.kill(own_kafka.pid, signal.SIGSTOP)
        taken = 0
        try:
            with suppress(ServiceError):
                while taken < 100:
                    publisher.send(Record(desk.topic, 0, None, b"1" * 100_000))
                    taken += 1
        finally:
            os.kill(own_kafka.pid, signal.SIGCONT)
    assert 5 <= taken < 15
    go_on(desk, tenure, 5, timeout=4)
    assert desk.values() == Counter(range(5))
