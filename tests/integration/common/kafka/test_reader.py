"""Reading a partition to its end on a real Kafka: holes, open transactions, a producer killed inside one."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its __all__ forgets it

from tailrace.local import LocalKafka
from tailrace_common.kafka import PartitionEnds, PartitionReader, Record, TopicReader, read_to_end
from tailrace_schemas.errors import ServiceError
from tests.integration.feed import ONE_BY_ONE

# A producer that opens a transaction, has its record in the log, says so, and then waits to be killed.
DANGLING = Path(__file__).with_name("dangling_transaction.py")


@pytest.fixture
def config(kafka: LocalKafka) -> dict[str, str]:
    """How a client reaches the broker."""
    return {"bootstrap.servers": kafka.bootstrap}


@pytest.fixture
def topic(config: dict[str, str], prefix: str) -> Iterator[str]:
    """An empty topic of two partitions."""
    admin = AdminClient({**config})
    name = f"{prefix}.reading"
    admin.create_topics([NewTopic(name, num_partitions=2, replication_factor=1)])[name].result(60)
    yield name
    admin.delete_topics([name])[name].result(60)


class Writer:
    """Transactions that end as told, to partition 1."""

    def __init__(self, config: dict[str, str], topic: str) -> None:
        self._topic = topic
        self._plain = Producer({**config, **ONE_BY_ONE})
        self._producer = Producer({**config, **ONE_BY_ONE, "transactional.id": f"{topic}.writer"})
        self._producer.init_transactions(30)

    def transaction(self, *values: str, commit: bool = True) -> None:
        """One transaction with these values."""
        self.open(*values)
        if commit:
            self._producer.commit_transaction(30)
        else:
            self._producer.abort_transaction(30)

    def open(self, *values: str) -> None:
        """Begin a transaction, and have its values in the log."""
        self._producer.begin_transaction()
        for value in values:
            self._producer.produce(self._topic, value=value, key="k", partition=1)
        assert self._producer.flush(60) == 0

    def commit(self) -> None:
        """Commit what is open."""
        self._producer.commit_transaction(30)

    def outside(self, *values: str, partition: int = 1) -> None:
        """Values without a transaction."""
        for value in values:
            self._plain.produce(self._topic, value=value, key="k", partition=partition)
        assert self._plain.flush(60) == 0


@pytest.fixture
def writer(config: dict[str, str], topic: str) -> Writer:
    """A writer of the topic."""
    return Writer(config, topic)


def _values(records: Iterator[Record]) -> list[str]:
    return [record.value.decode() for record in records if record.value is not None]


@pytest.mark.spine
def test_committed_records_are_read_across_the_holes_of_control_records(
    config: dict[str, str], topic: str, writer: Writer
) -> None:
    writer.transaction("a", "b")
    writer.transaction("lost", commit=False)
    writer.outside("c")
    writer.transaction("d")
    records = list(read_to_end(config, topic, 1, timeout=60))
    assert [record.value for record in records] == [b"a", b"b", b"c", b"d"]
    # Kafka writes the mark that ends a transaction after it has acknowledged the end: c may stand on either side of it.
    assert [record.offset for record in records] in ([0, 1, 4, 6], [0, 1, 5, 6])
    assert all(record.key == b"k" and record.timestamp > 0 for record in records)
    assert list(read_to_end(config, topic, 0, timeout=60)) == []


def test_a_reader_goes_on_where_it_was(config: dict[str, str], topic: str, writer: Writer) -> None:
    with PartitionReader(config, topic, 1, timeout=60) as reader:
        assert _values(reader.read_to_end()) == []
        writer.transaction("a")
        assert _values(reader.read_to_end()) == ["a"]
        writer.transaction("lost", commit=False)
        assert _values(reader.read_to_end()) == []
        assert reader.next_offset == 4
        assert reader.poll(0) is None
        writer.transaction("b", "c")
        first = reader.poll(60)
        assert first is not None
        assert first.value == b"b"
        assert _values(reader.read_to_end()) == ["c"]


@pytest.mark.promise("agent.readers-wait")
def test_an_open_transaction_is_waited_for_until_it_ends(config: dict[str, str], topic: str, writer: Writer) -> None:
    writer.outside("a")
    writer.open("b")
    writer.outside("c")
    with ThreadPoolExecutor(1) as elsewhere, PartitionReader(config, topic, 1, timeout=60) as reader:
        reading = reader.read_to_end()
        assert next(reading).value == b"a"
        rest = elsewhere.submit(lambda: _values(reading))
        try:
            with pytest.raises(TimeoutError):
                rest.result(1)
        finally:
            writer.commit()
        assert rest.result(60) == ["b", "c"]


def test_a_transaction_that_stays_open_ends_in_an_error_that_says_so(
    config: dict[str, str], topic: str, writer: Writer
) -> None:
    writer.outside("a")
    writer.open("b")
    reading = read_to_end(config, topic, 1, timeout=10)
    assert next(reading).value == b"a"
    with pytest.raises(ServiceError, match=r"offset 1 of 2.*keeps a transaction open"):
        next(reading)
    writer.commit()


@pytest.mark.spine
@pytest.mark.promise("agent.start-behind-open-transaction")
def test_a_producer_killed_inside_a_transaction_hides_nothing(
    config: dict[str, str], topic: str, writer: Writer
) -> None:
    command = [sys.executable, str(DANGLING), config["bootstrap.servers"], topic, "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "open\n"
        killed.send_signal(signal.SIGKILL)
    writer.outside("behind it")
    writer.transaction("and this")
    assert _values(read_to_end(config, topic, 1, timeout=60)) == ["behind it", "and this"]


def test_a_missing_topic_or_partition_is_named(config: dict[str, str], topic: str) -> None:
    for name, partition in ((f"{topic}.not", 0), (topic, 2)):
        with pytest.raises(ServiceError, match=rf"{name}\[{partition}\]: there is no such topic or partition"):
            list(read_to_end(config, name, partition, timeout=60))


def test_a_topic_made_anew_is_noticed(config: dict[str, str], prefix: str) -> None:
    admin = AdminClient({**config})
    name = f"{prefix}.anew"
    admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1)])[name].result(60)
    producer = Producer(config)
    producer.produce(name, value="a", partition=0)
    assert producer.flush(60) == 0
    with PartitionReader(config, name, 0, timeout=60) as reader:
        assert _values(reader.read_to_end()) == ["a"]
        admin.delete_topics([name])[name].result(60)
        admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1)])[name].result(60)
        with pytest.raises(ServiceError, match=r"ends at offset 0, but was read up to 1 before"):
            list(reader.read_to_end())


def test_a_partition_whose_beginning_was_deleted(config: dict[str, str], topic: str, writer: Writer) -> None:
    """Retention took the first records: reading begins with what is left."""
    writer.outside("a", "b", "c", "d")
    admin = AdminClient({**config})
    (deleted,) = admin.delete_records([TopicPartition(topic, 1, 3)]).values()
    assert deleted.result(60).low_watermark == 3
    assert [record.value for record in read_to_end(config, topic, 1)] == [b"d"]


def _of_topic(records: Iterator[tuple[int, Record]]) -> list[tuple[int, str]]:
    return [(number, record.value.decode()) for number, record in records if record.value is not None]


def test_a_whole_topic_is_read_to_its_end(config: dict[str, str], topic: str, writer: Writer) -> None:
    """Every partition, across control records, and behind a transaction that is open when the reading begins."""
    with TopicReader(config, topic, beginning=True, timeout=60) as reader:
        assert _of_topic(reader.read_to_end()) == []
        writer.transaction("a")
        writer.transaction("lost", commit=False)
        writer.outside("b", partition=0)
        assert sorted(_of_topic(reader.read_to_end())) == [(0, "b"), (1, "a")]
        writer.outside("c")
        writer.open("d")
        reading = reader.read_to_end()
        assert _of_topic(iter([next(reading)])) == [(1, "c")]
        writer.commit()
        assert _of_topic(reading) == [(1, "d")]


def test_a_partition_that_stands_still_is_told_of_while_another_grows(
    config: dict[str, str], topic: str, writer: Writer
) -> None:
    """Else whoever reads `.progress` would wait for ever: hosts go on writing into it."""
    writer.outside("a", partition=0)
    writer.open("b")

    def read() -> None:
        for _ in reader.read_to_end():
            writer.outside("more", partition=0)

    says = r"\[1\] was read up to offset 0 of 1.*keeps a transaction open"
    with TopicReader(config, topic, beginning=True, timeout=1) as reader, pytest.raises(ServiceError, match=says):
        read()
    writer.commit()


def test_a_topic_is_followed_from_what_is_committed(config: dict[str, str], topic: str, writer: Writer) -> None:
    """What was committed before is not shown, what stands in an open transaction is, once it is committed."""
    writer.transaction("before")
    writer.open("during")
    with TopicReader(config, topic) as reader:
        writer.commit()
        writer.outside("after", partition=0)
        assert sorted(_of_topic(reader.read_to_end())) == [(0, "after"), (1, "during")]


def test_a_topic_that_is_not_there_is_named(config: dict[str, str], topic: str) -> None:
    with pytest.raises(ServiceError, match=f"topic {topic}s: there is no such topic or partition"):
        TopicReader(config, f"{topic}s", timeout=1)


def test_ends_are_of_what_is_committed_and_there(config: dict[str, str], topic: str, writer: Writer) -> None:
    """A topic that was deleted takes nothing from what is known of the others."""
    writer.outside("one")
    writer.outside("two", "three", partition=0)
    writer.open("four")
    known = {(topic, 0): 2, (topic, 1): 1}
    assert PartitionEnds(config, timeout=60).of([*known, (topic, 2), (f"{topic}s", 0)]) == known
    writer.commit()
