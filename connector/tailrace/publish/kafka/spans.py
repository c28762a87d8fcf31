"""What stands in Kafka behind the last stable offset: of transactions that are open, or that it lost the marks of."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # its __all__ forgets it

from tailrace.publish.offsets import offsets_key, records_of
from tailrace.state import Resume
from tailrace_common.kafka import READING
from tailrace_common.kafka.client import LOG, QUIET, ClientErrors, Clock, Config, made, offset_of, service_error
from tailrace_common.secrets import redact
from tailrace_schemas.avro import SchemaEntry, decode
from tailrace_schemas.change import Change, Op, Origin
from tailrace_schemas.errors import ServiceError, TailraceError
from tailrace_schemas.position import Position
from tailrace_schemas.topics import Internal, KafkaPartition, internal_topic

Header = tuple[str, bytes | None, bytes | None]
"""Topic, key and value of a record."""

# Whose keys begin with the host id, and tell a position, if any, in their last parts but so many.
_AFTER_POSITION: Final = {Internal.SCHEMA_HISTORY: 0, Internal.SCHEMA_CHANGES: 1}
Span = tuple[int, int]
"""The last stable offset of a partition, and its end: between them stands what has no mark yet."""

_SECONDS: Final = 10
_LOOK_SECONDS: Final = 0.05
# Most of what has no mark at an instant has one by then; of hundreds of partitions only the rest is read.
_STILL_SECONDS: Final = 0.2
# A transaction is open for less, and its records have the times at which they were handed to the producer.
_EARLIER_MS: Final = 60_000
_AT_END: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka's own codes are named so
_TIMED_OUT: Final = KafkaError._TIMED_OUT  # noqa: SLF001 - as above
_FORBIDDEN: Final = KafkaError.TOPIC_AUTHORIZATION_FAILED


@dataclass(frozen=True, slots=True)
class Trace:
    """One record of this host. `told`: whether a given offsets record says that it is published. It is None for a
    record that tells nothing, or would do no harm a second time."""

    told: Callable[[Resume], bool | None]


class Owner:
    """Tells the records of one host from those of others, in all topics of a prefix; `schemas` decode changes."""

    def __init__(self, prefix: str, cluster: str, host: str, schemas: Mapping[bytes, SchemaEntry]) -> None:
        self._host = host
        self._own = offsets_key(cluster, host)
        self._schemas = schemas
        self._internal = {internal_topic(prefix, internal): internal for internal in Internal}

    def trace(self, record: Header) -> Trace | None:
        """What a record tells; None where it is not this host's."""
        topic, key, value = record
        internal = self._internal.get(topic)
        if internal is None:
            # Not by its key: keys of tables are partition keys, and tell no host.
            return None if value is None else self._change(value)
        key = key or b""
        if key == self._own or key.startswith((self._own + b"/", f"{self._host}/".encode())):
            return Trace(_by_key(internal, key))
        return None

    def is_offsets(self, record: Header) -> bool:
        """Whether it is the host's offsets record."""
        topic, key, value = record
        return self._internal.get(topic) is Internal.OFFSETS and key == self._own and value is not None

    def position(self, record: Header) -> Position | None:
        """The position of a change of this host that was published in its log's order; None for any other record."""
        topic, _, value = record
        change = None if value is None or topic in self._internal else self._decoded(value)
        if change is None or change.op is Op.TRUNCATE or change.source is None:
            return None
        source = change.source
        # A replayed or parked change is behind its place in the log.
        if source.host != self._host or source.origin is not Origin.LOG:
            return None
        return source.position

    def _decoded(self, value: bytes) -> Change | None:
        try:
            return decode(value, self._schemas)
        except TailraceError:
            return None

    def _change(self, value: bytes) -> Trace | None:
        change = self._decoded(value)
        if change is None:
            return None
        source = change.source
        # Copies of one mutation on other replicas are published by their own agents.
        if source is None or source.host != self._host:
            return None
        position, table = source.position, change.table.id

        def told(by: Resume) -> bool:
            # Truncations are published apart from the position, by the place up to which the log was read for DDL.
            if change.op is Op.TRUNCATE:
                pending = any(
                    truncation.position == position and truncation.table_id == table for truncation in by.truncations
                )
                return not pending and by.schema is not None and position <= by.schema
            parked = any(
                (lot.epoch, lot.segment) == (position.epoch, position.segment) and position.offset in lot.offsets
                for lot in by.parked
            )
            # What was parked comes behind the position; published from there (origin = parked), it was parked until
            # that commit.
            return not parked and (
                source.origin is Origin.PARKED or (by.position is not None and position <= by.position)
            )

        return Trace(told)


def committed(
    unmarked: Collection[Trace], by: Resume, records: int | None, visible: Callable[[], Iterable[Trace]]
) -> bool:
    """Whether the transaction was committed, of which the records `unmarked` have no mark; its offsets record apart.

    `by` is the last offsets record that readers have. Where the transaction's own has a mark, `records` is None, and
    that one tells. Else `records` is how many there are, as it says itself (-1: it does not).

    With all of them there, or one of them with readers, it counts as committed: Kafka may have told us so. With some
    missing and none with readers it never was, or nobody can know.
    """
    # The transaction's own offsets record has its mark: if it was committed, `by` was read from it.
    if records is None:
        verdicts = {trace.told(by) for trace in unmarked}
        return True in verdicts and False not in verdicts
    return len(unmarked) == records or any(trace.told(by) is False for trace in visible())


def _by_key(internal: Internal, key: bytes) -> Callable[[Resume], bool | None]:
    trailing = _AFTER_POSITION.get(internal)
    parts = key.decode(errors="replace").split("/")
    if trailing is None:
        return lambda _: None
    try:
        epoch, segment, offset = (int(digits) for digits in parts[len(parts) - 3 - trailing : len(parts) - trailing])
    except ValueError:
        return lambda _: None
    position = Position(epoch, segment, offset)
    return lambda by: by.schema is not None and position <= by.schema


class Spans:
    """Looks at all partitions of a prefix's topics; one thread at a time. Its methods raise ServiceError."""

    def __init__(
        self, config: Config, prefix: str, clock: Clock, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._prefix = prefix
        self._clock = clock
        self._sleep = sleep
        self._errors = ClientErrors()
        self._config: dict[str, Any] = {**QUIET, **config, "error_cb": self._errors}
        self._admin = made(lambda: AdminClient(self._config, logger=LOG))
        self._consumers: dict[bool, Consumer] = {}

    def close(self) -> None:
        """Leave Kafka."""
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()

    def unmarked(self, owner: Owner, patience: float) -> dict[KafkaPartition, Span]:
        """Where the oldest transaction without a mark is the owner's, who has none open now: its mark is lost.

        Transactions of others that stand before are waited for, `patience` seconds at most: they end by themselves.
        """
        deadline = self._clock() + patience
        goals: dict[KafkaPartition, int] = {}
        last_moves: dict[KafkaPartition, tuple[int, float]] = {}
        is_ours: dict[KafkaPartition, bool] = {}
        while True:
            spans = self._spans(goals or None)
            # Only what was there at the first look counts: other producers go on, and their ends would never be
            # reached.
            goals = goals or {partition: end for partition, (_, end) in spans.items()}
            open_spans = {partition: span for partition, span in spans.items() if span[0] < goals[partition]}
            now = self._clock()
            for partition, (stable, end) in open_spans.items():
                # The last stable offset moves when a transaction ends (KIP-98): its next first record may be another
                # producer's.
                if last_moves.get(partition, (-1, now))[0] != stable:
                    last_moves[partition] = stable, now
                    is_ours.pop(partition, None)
                elif partition not in is_ours and now - last_moves[partition][1] >= _STILL_SECONDS:
                    # The record at the last stable offset is the first of the oldest transaction that is open there.
                    first = next(self._read(partition, stable, end), None)
                    is_ours[partition] = first is not None and owner.trace(first) is not None
            own_spans = {partition: span for partition, span in open_spans.items() if is_ours.get(partition)}
            if len(own_spans) == len(open_spans):
                return own_spans
            if now > deadline:
                LOG.info(
                    "other producers' transactions have been open for over %.0f s; going on without them: %s",
                    patience,
                    sorted(open_spans),
                )
                return own_spans
            self._sleep(_LOOK_SECONDS)

    def committed(
        self,
        owner: Owner,
        unmarked: Mapping[KafkaPartition, Span],
        where: KafkaPartition,
        read: Callable[[Iterable[Header]], Resume],
    ) -> bool:
        """Whether the transaction whose marks are lost there was committed.

        `where` is the place of its offsets record; `read` makes of that one's records what the last of them says.
        """
        records = [record for partition, span in sorted(unmarked.items()) for record in self._read(partition, *span)]
        offsets_values = [value for record in records if owner.is_offsets(record) and (value := record[2]) is not None]
        maybe_traces = (owner.trace(record) for record in records if not owner.is_offsets(record))
        traces = [trace for trace in maybe_traces if trace is not None]
        # read_committed: where its own record has a mark, readers have it, and it tells the outcome.
        by = read(self._read(where, 0, None))
        if not offsets_values:
            return committed(traces, by, None, tuple)
        claimed = records_of(offsets_values[-1])
        return committed(traces, by, -1 if claimed is None else claimed, lambda: self._visible(owner, unmarked))

    def newest(self, owner: Owner, since: int) -> Position | None:
        """How far the owner's changes are published, by what readers have that was sent at `since` (milliseconds) or
        later; None where that is nothing."""
        positions = (owner.position(record) for record in self._sent_since(since - _EARLIER_MS))
        return max((position for position in positions if position is not None), default=None)

    def _visible(self, owner: Owner, unmarked: Mapping[KafkaPartition, Span]) -> Iterator[Trace]:
        """What readers have of the owner's that was sent at about the same time, or later."""
        since = min(self._sent_at(partition, first) for partition, (first, _) in unmarked.items()) - _EARLIER_MS
        traces = (owner.trace(record) for record in self._sent_since(since))
        return (trace for trace in traces if trace is not None)

    def _sent_since(self, milliseconds: int) -> Iterator[Header]:
        """What readers have that was sent then or later."""
        partitions = list(self._offsets(IsolationLevel.READ_COMMITTED))
        times = [TopicPartition(topic, partition, milliseconds) for topic, partition in partitions]
        try:
            # ListOffsets by time gives the first record with that time or a later one. Times are the producers'
            # (CreateTime), so the caller asks for earlier ones too.
            starts = self._consumer(committed=True).offsets_for_times(times, timeout=_SECONDS)
        except KafkaException as error:
            raise service_error("offsets by time", error.args[0], self._errors) from error
        for start in starts:
            if start.offset >= 0:
                yield from self._read((start.topic, start.partition), start.offset, None)

    def _spans(self, among: Collection[KafkaPartition] | None) -> dict[KafkaPartition, Span]:
        """Of these places, or of all, those that have something without a mark."""
        # In this order: a transaction that ends in between leaves a partition that looks unmarked once, and is looked
        # at again.
        stable = self._offsets(IsolationLevel.READ_COMMITTED, among)
        ends = self._offsets(IsolationLevel.READ_UNCOMMITTED, among)
        return {
            partition: (offset, ends[partition])
            for partition, offset in stable.items()
            if offset < ends.get(partition, 0)
        }

    def _offsets(
        self, isolation: IsolationLevel, among: Collection[KafkaPartition] | None = None
    ) -> dict[KafkaPartition, int]:
        """The last stable offsets, or the ends. Places that we may not look at, or that go meanwhile, are left out."""
        if among is None:
            among = self._places()
        if not among:
            return {}
        # ListOffsets with read_committed answers with the last stable offset, with read_uncommitted with the high
        # watermark.
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # theirs
        futures = self._admin.list_offsets(
            {TopicPartition(*partition): latest for partition in among},
            isolation_level=isolation,
            request_timeout=_SECONDS,
        )
        offsets: dict[KafkaPartition, int] = {}
        for kafka_partition, future in futures.items():
            try:
                offsets[kafka_partition.topic, kafka_partition.partition] = offset_of(future.result())
            except KafkaException as error:
                if error.args[0].code() == _TIMED_OUT:
                    self._admin.poll(0)  # calls error_cb, which knows why
                    raise service_error("asking where partitions end", error.args[0], self._errors) from error
                LOG.debug(
                    "the end of %s[%d]: %s",
                    kafka_partition.topic,
                    kafka_partition.partition,
                    redact(error.args[0].str()),
                )
        return offsets

    def _places(self) -> list[KafkaPartition]:
        try:
            topics = self._admin.list_topics(timeout=_SECONDS).topics
        except KafkaException as error:
            self._admin.poll(0)  # calls error_cb, which knows why
            raise service_error("listing topics", error.args[0], self._errors) from error
        names = (name for name in topics if name.startswith(f"{self._prefix}."))
        return [(name, partition) for name in names for partition in topics[name].partitions]

    def _read(self, partition: KafkaPartition, first: int, end: int | None) -> Iterator[Header]:
        """The records of a place from an offset on, committed or not; without an `end`, the committed ones."""
        for message in self._messages(partition, first, end):
            yield message.topic(), message.key(), message.value()

    def _sent_at(self, partition: KafkaPartition, first: int) -> int:
        """The time of the first record from an offset on, in milliseconds."""
        return next((int(message.timestamp()[1]) for message in self._messages(partition, first, first + 1)), 0)

    def _messages(self, partition: KafkaPartition, first: int, end: int | None) -> Iterator[Any]:
        consumer = self._consumer(committed=end is None)
        # assign, not subscribe: we are in no group, commit no offsets, and need no right on one.
        consumer.assign([TopicPartition(*partition, first)])
        deadline = self._clock() + _SECONDS
        while self._clock() < deadline:
            message: Any = consumer.poll(_LOOK_SECONDS)
            if message is None or (message.topic(), message.partition()) != partition:
                continue
            error = message.error()
            if error is None and (end is None or message.offset() < end):
                deadline = self._clock() + _SECONDS
                yield message
            # Control records (the marks) are never handed out, so PARTITION_EOF reports the end and not by an
            # offset.
            elif error is None or error.code() == _AT_END:
                return
            elif error.code() == _FORBIDDEN:
                LOG.warning("no READ permission on %s: lost transaction markers cannot be detected there", partition[0])
                return
        raise ServiceError(f"Kafka: {partition[0]}[{partition[1]}] gives nothing from offset {first} on{self._errors}")

    def _consumer(self, *, committed: bool) -> Consumer:
        if committed not in self._consumers:
            reading = {
                "group.id": "tailrace-reader",
                "isolation.level": "read_committed" if committed else "read_uncommitted",
            }
            config = {**self._config, **READING, **reading}
            self._consumers[committed] = made(lambda: Consumer(config, logger=LOG))
        return self._consumers[committed]
