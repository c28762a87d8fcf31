"""A host's changes and how far they go, in one transaction; or, where those are forbidden, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Final, Literal

from tailrace.history.events import fitting_event
from tailrace.history.records import HistoryRecord, history_values, read_history
from tailrace.publish.kafka.spans import Header, Owner, Spans
from tailrace.publish.offsets import (
    OffsetsError,
    OffsetsLostError,
    agent_name,
    agent_of,
    encode_offsets,
    encode_parked,
    offsets_key,
    parked_key,
    parked_prefix,
    read_offsets,
)
from tailrace.publish.record import Record
from tailrace.state import LotKey, Parked, Resume
from tailrace_common.kafka import PartitionReader, TopicStates, read_to_end
from tailrace_common.kafka.client import LOG, Clock, Config
from tailrace_common.kafka.outgoing import Sizes, WithHeaders
from tailrace_common.kafka.pace import Pace
from tailrace_common.kafka.producer import KafkaProducer
from tailrace_common.kafka.transactions import KafkaAppends, KafkaTransactions
from tailrace_common.topics import SchemaReader
from tailrace_common.tracing.spans import Headers
from tailrace_schemas.errors import CorruptError, FencedError, ServiceError
from tailrace_schemas.position import Position
from tailrace_schemas.progress import decode_progress, has_read
from tailrace_schemas.topics import Internal, host_partition, internal_topic

Delivery = Literal["exactly-once", "at-least-once"]

_ONE_AGENT: Final = "Run one agent per Cassandra node and topic prefix"
_WRITTEN: Final = (
    Internal.OFFSETS,
    Internal.SCHEMA_HISTORY,
    Internal.SCHEMA_CHANGES,
    Internal.PROGRESS,
    Internal.DEAD_LETTER,
)
_VERIFY_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 1.0
# Kafka's default of max.message.bytes, where it does not say a topic's own.
_COMMON_LIMIT: Final = 1_048_588
_AROUND: Final = 1024
_LEAST_ROOM: Final = 4096
# What Kafka needs, beyond two time-outs, to end what a third agent left open in the partition of the offsets.
_ABORT_SECONDS: Final = 10.0


@dataclass(slots=True)
class Tenure:
    """One agent process's claim on its host, over all producers that it makes.

    The offsets records that it writes carry its `id`; the first one is committed at its start. So it can tell another
    agent, which ends it, from a transaction that Kafka ended for its age.
    """

    id: str
    began: bool = False


class KafkaPublisher:
    """Publishes records and offsets as the transactional id `<prefix>.<host id>`; one thread at a time.

    After any error but FencedError and SettingsError: `close` it, and go on with a new one. `clock` is monotonic, in
    seconds; `timeout` is how many seconds Kafka may take over anything, and its limit for an open transaction. With
    `delivery` = "at-least-once" nothing is fenced, and a crash repeats what was sent since the last commit. Without a
    `tenure` nothing is signed. `verify` is called from time to time, between transactions; its SettingsError ends all.
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
        tenure: Tenure | None = None,
        verify: Callable[[], None] = lambda: None,
        pace: Pace | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._config = config
        self._prefix = prefix
        self._key = offsets_key(cluster, host)
        self._cluster, self._host = cluster, host
        self._lots: dict[LotKey, Parked] = {}
        self._clock = clock
        # An agent that died keeps its transaction open for transaction.timeout.ms; the coordinator looks for such ones
        # every transaction.abort.timed.out.transaction.cleanup.interval.ms, 10 s.
        self._patience = 2 * timeout + _ABORT_SECONDS
        self._tenure = tenure
        self._writer: str | None = None  # who signed the host's record last
        self._verify = verify
        self._verified = clock()
        self._sizes = sizes or Sizes()
        self._notes: list[tuple[Internal, bytes, bytes | None]] = []
        self._producer: KafkaProducer
        if delivery == "exactly-once":
            home = internal_topic(prefix, Internal.OFFSETS)
            # One id a host, so that init_transactions of a new agent fences the old one and ends its transaction
            # (KIP-98), whatever machine it runs on.
            id = f"{prefix}.{host}"
            self._producer = KafkaTransactions(
                config,
                id,
                home,
                clock=clock,
                timeout=timeout,
                sizes=sizes,
                pace=pace,
                stop=stop,
                another=self._another,
                fenced=self._fenced_words,
            )
        else:
            # An idempotent producer alone keeps order and repeats nothing within its life (KIP-98); across a crash it
            # cannot.
            self._producer = KafkaAppends(config, clock=clock, timeout=timeout, sizes=sizes, pace=pace, stop=stop)

    def open(self) -> None:
        """Fence an older agent, and end its transaction. Raises FencedError, ServiceError, SettingsError."""
        self._producer.open()
        # While a quota mutes the connection, nothing can be asked: what is missing is said when it is needed.
        for internal in _WRITTEN:
            with suppress(ServiceError):
                self._partition(internal_topic(self._prefix, internal))

    def start(self, *, lost: bool = False) -> Resume:
        """`open`, and read how far the host came (contracts.md 1, "Start").

        With `lost` a record that was deleted is expected, and none is committed. Raises FencedError, ServiceError,
        SettingsError, OffsetsError; without `lost` OffsetsLostError where the host's record was deleted.
        """
        self.open()
        topic = internal_topic(self._prefix, Internal.OFFSETS)
        # Before anything is read: a lost mark would hold the last stable offset, and with it every reader, for ever.
        if isinstance(self._producer, KafkaTransactions):
            self._settle(self._producer, topic)
        records = [(record.key, record.value) for record in read_to_end(self._config, topic, self._partition(topic))]
        resume = read_offsets(self._cluster, self._host, records)
        if lost:
            return resume
        # A tombstone counts as a record: a retired host that comes back is a new one (contracts.md 1, "A deleted
        # record").
        if all(key != self._key for key, _ in records):
            self._require_new_host(topic)
        self._lots = {lot.key: lot for lot in resume.parked}
        if self._tenure is not None:
            # Kafka calls a producer fenced also when it ended its transaction for its age (contracts.md 1, "Start").
            # The signature tells the two apart, and the newer of two agents stays.
            if self._tenure.began and self._taken(records):
                raise FencedError(self._fenced_words(" while this one could not publish"))
            # Signed before any change is published: from here on another agent of this host finds out who it was.
            self.commit(resume)
            self._tenure.began = True
        return resume

    def _require_new_host(self, offsets: str) -> None:
        """Raise OffsetsLostError where `.progress` says that the host had a record."""
        topic = internal_topic(self._prefix, Internal.PROGRESS)
        # A new prefix has no .progress yet, and to read a topic that does not exist is an error.
        if topic not in TopicStates(self._config).ids([topic]):
            return
        with self.progress() as reader:
            newest = {record.key: record.value for record in reader.read_to_end()}
        value = newest.get(self._key)
        try:
            progress = None if value is None else decode_progress(self._key, value)
        except CorruptError as error:
            raise OffsetsError(f"{offsets} has no record of host {self._host}, and had one: {error}") from error
        # An agent that waited for its first segment has progress without a position: nothing of it is lost.
        if progress is not None and has_read(progress):
            raise OffsetsLostError((offsets, topic), progress)

    def _settle(self, producer: KafkaTransactions, offsets: str) -> None:
        """End what Kafka left without marks of our last transaction, before anything follows it (contracts.md 4)."""
        with (
            SchemaReader(self._config, self._prefix) as schemas,
            closing(Spans(self._config, self._prefix, self._clock)) as spans,
        ):
            owner = Owner(self._prefix, self._cluster, self._host, schemas)
            unmarked = spans.unmarked(owner, self._patience)
            if unmarked:
                offsets_partition = offsets, self._partition(offsets)
                commit = spans.committed(owner, unmarked, offsets_partition, self._resume)
                names = ", ".join(f"{topic}[{partition}]" for topic, partition in sorted(unmarked))
                LOG.warning(
                    "no transaction markers of our last transaction in %s (KAFKA-20734); "
                    "writing them now; the outcome was: %s",
                    *(names, "committed" if commit else "not committed"),
                )
                producer.mark(unmarked, commit=commit)

    def history(self) -> tuple[HistoryRecord, ...]:
        """This host's schema history, as far as it is committed. Raises ServiceError, HistoryError."""
        topic = internal_topic(self._prefix, Internal.SCHEMA_HISTORY)
        records = read_to_end(self._config, topic, self._partition(topic))
        return read_history(self._host, ((record.key, record.value) for record in records if record.key is not None))

    def newest(self, since: int) -> Position | None:
        """How far this host's changes are published, by what was sent at `since` (milliseconds) or later; None where
        that is nothing. Raises ServiceError."""
        with (
            SchemaReader(self._config, self._prefix) as schemas,
            closing(Spans(self._config, self._prefix, self._clock)) as spans,
        ):
            return spans.newest(Owner(self._prefix, self._cluster, self._host, schemas), since)

    def progress(self) -> PartitionReader:
        """This host's partition of `.progress`; to be closed, and not bound to this publisher. Raises ServiceError."""
        topic = internal_topic(self._prefix, Internal.PROGRESS)
        return PartitionReader(self._config, topic, self._partition(topic))

    def send_all(self, records: Sequence[Record], headers: Headers = ()) -> None:
        """As `send`, for many at once, in their order; each with these headers, as far as it leaves room for them."""
        if not headers:
            self._producer.send_all(records)
            return
        # One by one: librdkafka's client takes twice as long for a record with headers, whatever calls it.
        for record in records:
            room = self._sizes.limits.get(record.topic, _COMMON_LIMIT) - _AROUND
            fits = len(record.value) + len(record.key or b"") <= room
            record_headers = headers if fits else ()
            self._producer.send(WithHeaders(record.topic, record.partition, record.key, record.value, record_headers))

    def send(self, record: Record) -> None:
        """Add a record to the transaction, which begins with it. Waits while the producer's buffer is full.

        Raises RefusedError where Kafka takes nothing for its topic until somebody acts; ServiceError, FencedError.
        """
        self._producer.send(record)

    def fits(self, records: Iterable[Record]) -> bool:
        """Whether the topics of these take such batches as this publisher makes; one that is restarted does."""
        return self._producer.fits(records)

    def note(self, internal: Internal, key: bytes, value: bytes | None) -> None:
        """Add a record, or a tombstone, of an internal topic to the transaction, in this host's partition of it.

        No reader has it before the changes that were sent before the next commit.
        """
        self._notes.append((internal, key, value))

    def commit(self, resume: Resume, history: Sequence[HistoryRecord] = ()) -> None:
        """Commit everything sent since the last commit together with the schema history that it rests on, with the
        notes, and with how far it goes. All or nothing; without transactions in this order, the offsets last."""
        producer = self._producer
        producer.begin()
        for definition in history:
            for key, value in history_values(self._host, definition, self._room(Internal.SCHEMA_HISTORY)):
                self._send(Internal.SCHEMA_HISTORY, key, value)
        producer.settle()
        self._note_parked(resume.parked)
        for internal, key, noted in self._notes:
            # The limit is the topic's when the event is sent, and its owner may have lowered it since the event was
            # made.
            if internal is Internal.SCHEMA_CHANGES and noted is not None:
                noted = fitting_event(noted, self._room(internal))
            self._send(internal, key, noted)
        producer.settle()
        self._notes.clear()
        # Last, so that without transactions a crash repeats changes and never passes them over. In a transaction its
        # `records` says how many others belong to it, for a start that finds marks missing.
        self._send(Internal.OFFSETS, self._key, self._signed(resume))
        producer.end()
        self._verify_at_times()

    def forget(self) -> None:
        """Commit tombstones in the place of the host's offsets record and progress, of what it has parked, and of its
        schema history."""
        beginnings = (
            (Internal.OFFSETS, parked_prefix(self._cluster, self._host)),
            (Internal.SCHEMA_HISTORY, f"{self._host}/".encode()),
        )
        for internal, beginning in beginnings:
            topic = internal_topic(self._prefix, internal)
            # From the topic and not from what was read at the start: a damaged lot is among them, and would end
            # every later start.
            values = {record.key: record.value for record in read_to_end(self._config, topic, self._partition(topic))}
            for key, value in values.items():
                if key is not None and value is not None and key.startswith(beginning):
                    self.note(internal, key, None)
        # Nothing waits for it any more, and its record is not taken for lost once its tombstone is compacted.
        self.note(Internal.PROGRESS, self._key, None)
        for note in (*self._notes, (Internal.OFFSETS, self._key, None)):
            self._send(*note)
        self._notes.clear()
        self._producer.end()

    def close(self) -> None:
        """Give up what is not committed."""
        self._notes.clear()
        self._producer.close()

    def _resume(self, records: Iterable[Header]) -> Resume:
        return read_offsets(self._cluster, self._host, ((key, value) for _, key, value in records))

    def _signed(self, resume: Resume) -> bytes:
        # A start that finds records without marks tells by this number whether it sees all of the transaction
        # (evidence.committed).
        records = self._producer.sent if isinstance(self._producer, KafkaTransactions) else None
        return encode_offsets(resume, None if self._tenure is None else self._tenure.id, records)

    def _taken(self, records: Iterable[tuple[bytes | None, bytes | None]], is_another: bool = False) -> bool:
        """Whether another process than ours was the last to sign, or to forget, the host's record.

        `records` are keys and values in order. What nobody signed tells nothing.
        """
        for key, value in records:
            if key == self._key:
                writer = None if value is None else agent_of(value)
                if value is None or writer is not None:
                    is_another = self._tenure is None or writer != self._tenure.id
                self._writer = writer
        return is_another

    def _fenced_words(self, meanwhile: str = "") -> str:
        """What happened, by whom, and what to do."""
        own_id = None if self._tenure is None else self._tenure.id
        name = "" if self._writer in (None, own_id) else agent_name(self._writer or "")
        by = f" ({name})" if name else ""
        return (
            f"another agent started for host {self._host}{meanwhile}{by}: this one ends, and may publish nothing more. "
            f"{_ONE_AGENT}; do not start this one again while the other runs"
        )

    def _another(self) -> bool:
        """Whether a newer agent has signed the host's record; it may be between its start and that yet.

        Where we have not signed ourselves, none is newer. An older one took the id back, because its own call failed
        while we took it. We take the id again, and the older one finds our signature.
        """
        if self._tenure is None:
            return True
        if not self._tenure.began:
            return False
        topic = internal_topic(self._prefix, Internal.OFFSETS)
        deadline = self._clock() + self._patience
        is_another = False
        try:
            with PartitionReader(self._config, topic, self._partition(topic)) as reader:
                is_another = self._taken((record.key, record.value) for record in reader.read_to_end())
                # The other agent signs only after it has read the topics, which waits for open transactions: so it gets
                # that time.
                while not is_another and (remaining := deadline - self._clock()) > 0:
                    self._producer.wait_on()
                    later = reader.poll(min(remaining, _LOOK_SECONDS))
                    is_another = later is not None and self._taken([(later.key, later.value)])
        except ServiceError as error:
            LOG.info("could not check for a newer agent of this host; the next start checks again: %s", error)
        return is_another

    def _verify_at_times(self) -> None:
        if self._clock() - self._verified < _VERIFY_SECONDS:
            return
        self._verified = self._clock()
        try:
            self._verify()
        except ServiceError as error:
            LOG.info("could not verify that the topics are unchanged; will check again: %s", error)

    def _note_parked(self, lots: Iterable[Parked]) -> None:
        """What is new of them, and tombstones of those that are no more. A transaction that fails ends this publisher,
        so that what was noted last is what is committed."""
        present = {lot.key: lot for lot in lots}
        # Beside the offsets record and not in it: what is parked may be large, and the record is written with every
        # commit.
        for key in self._lots.keys() - present.keys():
            self.note(Internal.OFFSETS, parked_key(self._cluster, self._host, key), None)
        for key, lot in present.items():
            if self._lots.get(key) != lot:
                self.note(Internal.OFFSETS, parked_key(self._cluster, self._host, key), encode_parked(lot))
        # Set before the commit: where that fails this publisher ends, and the next one reads the lots from Kafka again.
        self._lots = present

    def _send(self, internal: Internal, key: bytes, value: bytes | None) -> None:
        topic = internal_topic(self._prefix, internal)
        partition = self._partition(topic)
        if value is None:
            self._producer.send_tombstone(topic, partition, key)
        else:
            self._producer.send(Record(topic, partition, key, value))

    def _room(self, internal: Internal) -> int:
        """How many bytes a value of an internal topic may have."""
        limit = self._sizes.limits.get(internal_topic(self._prefix, internal), _COMMON_LIMIT)
        # max.message.bytes is of the whole batch: its header, and the record's own lengths, times and key come on top.
        return max(_LEAST_ROOM, limit - _AROUND)

    def _partition(self, topic: str) -> int:
        # By the host's token and not by librdkafka's partitioner, so that readers of any client find the partition
        # (contracts.md 1).
        return host_partition(self._host, self._producer.partitions(topic))
