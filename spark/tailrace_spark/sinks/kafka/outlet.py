"""Changes into topics of Kafka: a share of a batch is one transaction, which also says how far the sink is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from tailrace_common.kafka import KafkaTransactions, Pace, Sizes
from tailrace_common.kafka.topics import InvalidTopicError, TopicMaker
from tailrace_common.properties.passthrough import Scalar
from tailrace_schemas.change import Change
from tailrace_schemas.errors import RefusedError, SettingsError
from tailrace_schemas.table import Table
from tailrace_schemas.tokens import partition as partition_of
from tailrace_schemas.topics import Internal, KafkaPartition, topic_component
from tailrace_spark.batch.delivery import DeadLetter, MicroBatch, RecordId, Summary
from tailrace_spark.batch.row_image import Imaged
from tailrace_spark.sinks.changelog.routes import Route, RouteError
from tailrace_spark.sinks.changelog.sink import Batch, OutgoingRecord
from tailrace_spark.sinks.kafka.avro import AvroChanges, AvroWriters, Registry
from tailrace_spark.sinks.kafka.debezium import DebeziumForm, json_writer
from tailrace_spark.sinks.kafka.json_format import ChangeForm, JsonChanges, KafkaRecord, event_headers
from tailrace_spark.sinks.kafka.progress import Next, Progress, progress_record
from tailrace_spark.sinks.kafka.settings import KafkaSinkSettings, longest_topic
from tailrace_spark.sinks.letters import LOGGED, Letters
from tailrace_spark.sinks.table_faults import Refusals, TableRefusedError, is_of_table, reason_of

Config = Mapping[str, Scalar]

_FENCED: Final = (
    "another stream writes for sink {}: this one may write no more. Run one stream per sink",
    "another replay of the dead letters of sink {} has begun: this one may write no more",
)
# The brokers' own limit for an open transaction, unless it is set (transaction.max.timeout.ms).
_LONGEST_SECONDS: Final = 900
_COMPACTED: Final = {"cleanup.policy": "compact"}
_KEPT: Final = {"cleanup.policy": "delete"}
_AT_ONCE: Final = 1_000
_BYTES_AT_ONCE: Final = 1 << 20
"""So many records, or so many bytes of them, are given to the client together."""
_KEY_VALUE: Final = "[A-Za-z0-9_-]*"  # as topic_component writes any value


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaTarget:
    """Where a sink's records go. `prefix` is the source's [topics] prefix.

    `replays`: it is dead letters that go there, beside a stream that may run. `source`: what a task writes.
    """

    name: str
    prefix: str
    settings: KafkaSinkSettings = field(repr=False)
    replays: bool = False
    source: KafkaPartition | None = None

    @property
    def id(self) -> str:
        """The transactional id: two streams that write for one sink end each other, and so do two replays.

        A task of a source partition has one of its own: of two attempts the later one ends the earlier.
        """
        if self.source is not None:
            return "{}.sink.{}.{}.{}".format(self.prefix, self.name, *self.source)
        return f"{self.prefix}.sink.{self.name}{'.letters' if self.replays else ''}"

    @property
    def progress(self) -> str:
        """The topic that says how far each sink of this prefix is."""
        return f"{self.prefix}.sink-progress"

    @property
    def debezium(self) -> bool:
        """Whether events of Debezium's go there."""
        return self.settings.format == "debezium"

    def route(self) -> Route:
        """Of the topic of each change: a value has no dot in it, so it stays one part of the name."""
        longest = longest_topic(debezium=self.debezium)
        return Route(self.settings.topic, topic_component, {"prefix": self.prefix}, longest=longest)


class KafkaOutlet:
    """Writes each change once, for `read_committed` readers: what a batch that comes again has before is left out.

    The transaction of a batch's records also writes, into the topic `progress`, the next offset of each partition of
    the source. A start reads it when older transactions have ended. `open_producer` makes the transactions' client.
    With a `registry` records are Avro under its ids, else JSON.
    """

    def __init__(
        self,
        config: Config,
        target: KafkaTarget,
        open_producer: Callable[[Config, KafkaTarget], KafkaTransactions] | None = None,
        registry: Registry | None = None,
        letters: Letters = LOGGED,
    ) -> None:
        self.config: Config = dict(config)
        self.target = target
        self.letters = letters
        settings = target.settings
        self._pace = Pace(settings.transaction_timeout_seconds, _LONGEST_SECONDS, time.monotonic)
        self._open_producer = open_producer or partial(transactions, pace=self._pace)
        self._topics = TopicMaker(config)
        self._route = target.route()
        self._counts: dict[str, int] = {}
        self._refusals = Refusals()
        self._producer: KafkaTransactions | None = None
        self.progress = Progress(config, target.progress, target.name)
        self._registry = registry
        self._writers = None if registry is None else AvroWriters(registry)
        self.events: DebeziumForm = DebeziumForm(
            target.prefix,
            lambda topic, token: partition_of(token, self.partitions(topic)),
            tombstones=settings.tombstones,
            writer=json_writer if self._writers is None else self._writers.connect,
        )
        """Makes Debezium's events of images, where the target wants them."""
        self.form: ChangeForm = (
            JsonChanges(primary=settings.key == "primary", structured=settings.cloudevents == "structured")
            if self._writers is None
            else AvroChanges(self._writers, target.prefix, settings.key)
        )
        """Makes records of changes."""

    def reach(self) -> None:
        """Ask for the topics, and the registry. Raises ServiceError where nobody answers, SettingsError for a setting
        of Kafka's."""
        self._topics.partitions()
        if self._registry is not None:
            self._registry.reach()

    def begin(self, batch: MicroBatch) -> Batch:
        """A transaction; the first one fences whoever wrote for this sink before. Raises FencedError, ServiceError.

        What is written `again` has a transactional id of its own: two replays fence each other. Raises SettingsError
        for Debezium's form.
        """
        self.renew()
        if batch.again:
            return self._again()
        producer = self.producer()
        return KafkaBatch(self, producer, self.target, self.progress.next)

    def _again(self) -> Batch:
        if self.target.debezium:
            raise SettingsError(
                f'sink.{self.target.name}: format = "debezium" needs the rows before and after a change, and a dead '
                "letter has none. Read the topics again, into a sink of another name"
            )
        self.ensure_topics()
        target = replace(self.target, replays=True)
        return OwnBatch(self, self.open_producer(target), target, {})

    def producer(self) -> KafkaTransactions:
        """The driver's, opened where it is not; how far the sink is, is read then."""
        # A batch that did not get through in time gets as long as it needs, and the next one as long as ever.
        if not self._pace.suits(self._pace.failed):
            self.abandon()
        if self._producer is None:
            self.ensure_topics()
            producer = self.open_producer(self.target)
            try:
                self.progress.read()
            except BaseException:
                producer.close()
                raise
            self._producer = producer
        return self._producer

    def open_producer(self, target: KafkaTarget) -> KafkaTransactions:
        """A producer of the target's id, which ends who used that before. Raises FencedError, ServiceError."""
        producer = self._open_producer(self.config, target)
        try:
            producer.open()
        except BaseException:
            producer.close()
            raise
        return producer

    def renew(self) -> None:
        """A batch begins: what the registry refused is offered to it again."""
        if self._writers is not None:
            self._writers.begin()

    def ensure_topics(self) -> None:
        """See that the sink's own topic is there. Raises SettingsError, ServiceError."""
        self._ensure(self.target.progress, 1, _COMPACTED)

    def partitions(self, topic: str) -> int:
        """How many partitions a table's topic has; made if it is missing.

        Raises TableRefusedError where Kafka has no such topic or takes no records for it, or it is among those of
        agents; SettingsError, ServiceError.
        """
        self._refusals.check(topic)
        try:
            if topic not in self._counts:
                self._require_nobodys(topic)
            return self._ensure(topic, self.target.settings.partitions, _KEPT)
        except InvalidTopicError as error:
            self._refusals.note(topic, error)
            raise TableRefusedError(str(error)) from error

    def _require_nobodys(self, topic: str) -> None:
        """Refuse what is below the prefix of agents that publish into this Kafka, whatever its address is here."""
        existing, steps = self._topics.partitions(), topic.split(".")
        for prefix in (".".join(steps[:count]) for count in range(1, len(steps))):
            if any(f"{prefix}.{internal}" in existing for internal in (Internal.OFFSETS, Internal.SCHEMAS)):
                raise InvalidTopicError(
                    f"topic {topic} is below {prefix}, the prefix of agents that publish into this Kafka, and would be "
                    f"taken for theirs. Let sink.{self.target.name}.topic begin otherwise"
                )

    def topics_of(self, change: Change) -> list[str]:
        """The topics of a change: of a truncation, where values of keys name topics, all that its table has by now.

        Raises TableRefusedError where the route, or the limit of topics, does not let it have one; ServiceError.
        """
        if not self._route.by_key:
            return [self._route.of(change)]
        if change.key is None:
            return sorted(self._made_by_keys(change.table))
        topic = self._route.of(change)
        if topic not in self._counts:
            existing, most_topics = self._made_by_keys(change.table), self.target.settings.most_topics
            if topic not in existing and len(existing) >= most_topics:
                raise RouteError(
                    f"its key would make one more topic than the sink's most_topics, {most_topics}, allows"
                )
        return [topic]

    def _made_by_keys(self, table: Table) -> set[str]:
        """The topics of a table that there are."""
        pattern = self._route.pattern(table, _KEY_VALUE)
        return {name for name in self._topics.partitions() if pattern.fullmatch(name)}

    @contextmanager
    def sending(self) -> Iterator[None]:
        """While inside, a topic of a table's that Kafka refuses is remembered: the batch comes again without it."""
        try:
            yield
        except RefusedError as error:
            self._refusals.note(error.topic, error)
            raise

    def abandon(self) -> None:
        """End the transaction without its records; how far the sink is, the next one reads."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def close(self) -> None:
        """Leave Kafka, and the registry."""
        self.abandon()
        self.progress.close()
        if self._registry is not None:
            self._registry.close()

    def _ensure(self, topic: str, partitions: int, settings: Mapping[str, str]) -> int:
        if topic not in self._counts:
            self._counts[topic] = self._topics.ensure(topic, partitions, settings)
        return self._counts[topic]


def transactions(config: Config, target: KafkaTarget, pace: Pace | None = None) -> KafkaTransactions:
    """The client of a sink's transactions, which last as long as `pace` says."""
    return KafkaTransactions(
        config,
        target.id,
        target.progress,
        clock=time.monotonic,
        timeout=target.settings.transaction_timeout_seconds,
        sizes=Sizes(largest=target.settings.largest_record),
        fenced=_FENCED[target.replays].format(target.name),
        pace=pace,
    )


class KafkaBatch(Batch):
    """One transaction. What is before `after` went out in an earlier one."""

    def __init__(self, outlet: KafkaOutlet, producer: KafkaTransactions, target: KafkaTarget, after: Next) -> None:
        super().__init__()
        self._outlet = outlet
        self._producer = producer
        self._target = target
        self._after = after
        self._next: Next = {}
        self._pending: list[KafkaRecord] = []
        self._pending_bytes = 0
        self._rows = 0
        self._makers: Sequence[Callable[[OutgoingRecord], Iterable[KafkaRecord]]] = (self._changes,)
        if target.debezium:  # what cannot be said of rows that expired keeps no event of the change itself
            self._makers = tuple(partial(self._events, make) for make in (outlet.events.expired, outlet.events.events))

    def put(self, record: OutgoingRecord) -> None:
        if self.is_out(record.first_id):
            return
        limit = self._target.settings.largest_record
        largest, reason = 0, ""
        for make in self._makers:
            try:
                for sent in make(record):
                    size = sent.size
                    largest = max(largest, size)
                    if size <= limit:
                        self._pending.append(sent)
                        self._pending_bytes += size
                        self._rows += 1
            except BaseException as error:
                if not is_of_table(error):
                    raise
                reason = reason_of(error)
        if largest > limit:
            reason = f"{largest} bytes as a record, more than the sink's largest_record, {limit}"
        if reason:
            self.aside.append(DeadLetter(record.record_id, reason, record.message))
        if len(self._pending) >= _AT_ONCE or self._pending_bytes >= _BYTES_AT_ONCE:
            self._send()

    def _send(self) -> None:
        """Give the client what waits. A refusal of any of its topics ends the batch, whatever change is at hand."""
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        with self._outlet.sending():
            self._producer.send_all(pending)

    def _changes(self, record: OutgoingRecord) -> list[KafkaRecord]:
        """The change in each of its topics, or in none."""
        return [self._change(record, topic) for topic in self._outlet.topics_of(record.change)]

    def _change(self, record: OutgoingRecord, topic: str) -> KafkaRecord:
        """The change as one record; where its images make it too large, without them."""
        settings, images, form = self._target.settings, record.images, self._outlet.form
        partition = record.record_id.partition % self._outlet.partitions(topic)
        headers = event_headers(record, form.content_type) if settings.cloudevents == "binary" else ()
        sent = KafkaRecord(topic, partition, form.key(topic, record), form.value(topic, record), headers)
        if images is None or images == images.untold or sent.size <= settings.largest_record:
            return sent
        return self._change(replace(record, images=images.untold), topic)

    def _events(
        self, make_events: Callable[[str, Change, RecordId, Imaged], Iterator[KafkaRecord]], record: OutgoingRecord
    ) -> Iterator[KafkaRecord]:
        """The events of its rows, each in the partition of its key's token, so that a key has one."""
        if record.images is None:
            raise SettingsError(f'sink.{self._target.name}: format = "debezium" needs `images`')
        [topic] = self._outlet.topics_of(record.change)
        return make_events(topic, record.change, record.record_id, record.images)

    def set_aside(self, letter: DeadLetter) -> None:
        if not self.is_out(letter.first_id):
            super().set_aside(letter)

    def is_out(self, record_id: RecordId) -> bool:
        """Whether an earlier transaction had it; else this one will."""
        source_partition = record_id.topic, record_id.partition
        if record_id.offset < self._after.get(source_partition, 0):
            return True
        self._next[source_partition] = max(self._next.get(source_partition, 0), record_id.offset + 1)
        return False

    def commit(self) -> Summary:
        notes = [] if self._target.replays else list(self._notes())
        self._outlet.letters.put(self.aside)  # the commit is what leaves them out from then on
        if notes or self._rows:
            self._send()
            with self._outlet.sending():
                # All tasks read the one partition of progress to the end of its open transactions: this one is open
                # there for as short as it can be.
                self._producer.acknowledge()
                self._producer.send_all(notes)
                self._producer.end()
            self._after.update(self._next)
        return Summary(rows=self._rows, dead_letters=len(self.aside))

    def _notes(self) -> Iterator[KafkaRecord]:
        """What the transaction says of itself: how far it moves each partition. Without any there is none."""
        for (topic, partition), offset in self._next.items():
            by_tasks = self._target.source is not None
            yield progress_record(
                self._target.progress, self._target.name, (topic, partition), offset, by_tasks=by_tasks
            )

    def abandon(self) -> None:
        self._outlet.abandon()


class OwnBatch(KafkaBatch):
    """One transaction of a producer that ends with it: a Kafka partition's in a task, or that of dead letters."""

    def commit(self) -> Summary:
        done = super().commit()
        self._producer.close()
        return done

    def abandon(self) -> None:
        self._producer.close()
