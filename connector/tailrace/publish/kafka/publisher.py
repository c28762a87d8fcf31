"""A host's changes and how far they go, in one transaction; or, where those are forbidden, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tailrace.capture.cdcraw import Resume
from tailrace.history.records import HistoryRecord, encode_history, history_key, read_history
from tailrace.publish.kafka.appends import KafkaAppends
from tailrace.publish.kafka.client import Clock, Config
from tailrace.publish.kafka.producer import KafkaProducer, Sizes
from tailrace.publish.kafka.transactions import KafkaTransactions
from tailrace.publish.offsets import decode_offsets, encode_offsets, offsets_key
from tailrace.publish.record import Record
from tailrace_common.kafka import read_to_end
from tailrace_schemas.topics import Internal, host_partition, internal_topic

Delivery = Literal["exactly-once", "at-least-once"]


class KafkaPublisher:
    """Publishes records and offsets as the transactional id `<prefix>.<host id>`; one thread at a time.

    After any error but FencedError and SettingsError: `close` it, and go on with a new one. `clock` is monotonic, in
    seconds; `timeout` is how many seconds Kafka may take over anything, and its limit for an open transaction. With
    `delivery` = "at-least-once" nothing is fenced, and a crash repeats what was sent since the last commit.
    """

    def __init__(
        self,
        config: Config,
        *,
        prefix: str,
        cluster: str,
        host: str,
        clock: Clock,
        timeout: int = 10,
        sizes: Sizes | None = None,
        delivery: Delivery = "exactly-once",
    ) -> None:
        self._config = config
        self._prefix = prefix
        self._key = offsets_key(cluster, host)
        self._host = host
        self._notes: list[Record] = []
        self._producer: KafkaProducer
        if delivery == "exactly-once":
            self._producer = KafkaTransactions(config, f"{prefix}.{host}", clock=clock, timeout=timeout, sizes=sizes)
        else:
            self._producer = KafkaAppends(config, clock=clock, timeout=timeout, sizes=sizes)

    def open(self) -> None:
        """Fence an older agent, and end its transaction. Raises FencedError, ServiceError, SettingsError."""
        self._producer.open()

    def start(self) -> Resume:
        """`open`, and read how far the host came (contracts.md 1, "Start").

        Raises FencedError, ServiceError, SettingsError, OffsetsError.
        """
        self.open()
        resume = Resume()
        topic = internal_topic(self._prefix, Internal.OFFSETS)
        for record in read_to_end(self._config, topic, self._partition(topic)):
            if record.key == self._key:
                resume = Resume() if record.value is None else decode_offsets(record.value)
        return resume

    def history(self) -> tuple[HistoryRecord, ...]:
        """This host's schema history, as far as it is committed. Raises ServiceError, HistoryError."""
        topic = internal_topic(self._prefix, Internal.SCHEMA_HISTORY)
        found = read_to_end(self._config, topic, self._partition(topic))
        return read_history(self._host, ((record.key, record.value) for record in found if record.key is not None))

    def send(self, record: Record) -> None:
        """Add a record to the transaction, which begins with it. Waits while the producer's buffer is full.

        Raises RefusedError where Kafka takes nothing for its topic until somebody acts; ServiceError, FencedError.
        """
        self._producer.send(record)

    def note(self, which: Internal, key: bytes, value: bytes) -> None:
        """Add a record of an internal topic to the transaction; readers never have it before the changes in it."""
        self._notes.append(self._record(which, key, value))

    def commit(self, resume: Resume, history: Sequence[HistoryRecord] = ()) -> None:
        """Commit everything sent since the last commit together with the schema history that it rests on, with the
        notes, and with how far it goes. All or nothing; without transactions in this order, the offsets last."""
        producer = self._producer
        producer.begin()
        for one in history:
            producer.send(self._record(Internal.SCHEMA_HISTORY, history_key(self._host, one), encode_history(one)))
        producer.settle()
        for note in self._notes:
            producer.send(note)
        if self._notes:
            producer.settle()
        self._notes.clear()
        producer.send(self._record(Internal.OFFSETS, self._key, encode_offsets(resume)))
        producer.end()

    def forget(self) -> None:
        """Commit a tombstone in the place of the host's offsets record."""
        topic = internal_topic(self._prefix, Internal.OFFSETS)
        where = self._partition(topic)
        self._producer.begin()
        self._producer.call("a tombstone", lambda p: p.produce(topic, key=self._key, partition=where))
        self._producer.end()

    def close(self) -> None:
        """Give up what is not committed."""
        self._notes.clear()
        self._producer.close()

    def _record(self, which: Internal, key: bytes, value: bytes) -> Record:
        topic = internal_topic(self._prefix, which)
        return Record(topic, self._partition(topic), key, value)

    def _partition(self, topic: str) -> int:
        return host_partition(self._host, self._producer.partitions(topic))
