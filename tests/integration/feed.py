"""Puts changes into a real Kafka as agents do: topics, schemas, a generation, transactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Final
from uuid import uuid4

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec  # type: ignore[attr-defined]  # its __all__ forgets it

from tailrace_common.kafka import TopicReader
from tailrace_common.kafka.topics import PartitionEnds
from tailrace_common.settings import TopicSettings
from tailrace_schemas.avro import Encoder, schema_records
from tailrace_schemas.change import Change
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.generation_records import Proposal, encode_proposal
from tailrace_schemas.ring import Node, Ring
from tailrace_schemas.streams import Generation, build_generation
from tailrace_schemas.table import Table
from tailrace_schemas.tokens import partition
from tailrace_schemas.topics import Internal, KafkaPartition, TopicPlan, table_topic
from tailrace_spark.batch.delivery import RecordKey
from tests.support.waiting import until

RING = Ring((Node("11111111-0000-0000-0000-000000000000", "dc1", tuple(range(-(2**63) + 1, 2**63, 2**60))),))
GENERATION_AT = 1_000
"""Milliseconds: before every write time that the tests use, but those of the first second."""


def generation_of(timestamp: int) -> Generation:
    """The one that is announced for a time in milliseconds."""
    return build_generation(RING, 2, timestamp=timestamp, seed=timestamp)


# A broker that does not know a producer in a partition takes its records from any sequence number on. Of two batches
# under way to a new topic it may refuse the first and take the second (KAFKA-15591); librdkafka says both are written.
ONE_BY_ONE: Final = {"max.in.flight": 1}


class Feed:
    """One cluster's topics under one prefix."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.options = TopicSettings(prefix=prefix, partitions=2)
        self._config = {"bootstrap.servers": bootstrap}
        self._admin = AdminClient({**self._config})
        self._ends = PartitionEnds(self._config, timeout=60)
        sent = {**self._config, **ONE_BY_ONE}
        self._producer = Producer({**sent, "transactional.id": f"{prefix}.feed", "message.max.bytes": 16 << 20})
        self._producer.init_transactions(30)
        self._plain = Producer({**sent, "enable.idempotence": True})
        self._encoders: dict[Table, Encoder] = {}
        self._grown: dict[str, int] = {}
        for internal in (Internal.SCHEMAS, Internal.SCHEMA_CHANGES):
            self._create(self.options.internal_plan(internal))

    def close(self) -> None:
        """Leave the broker before it goes."""
        del self._admin, self._ends, self._producer, self._plain

    def topic(self, table: Table) -> str:
        return table_topic(self.options.prefix, table.keyspace, table.name, table.id)

    def announce(self, timestamp: int = GENERATION_AT, predecessor: int | None = None) -> Generation:
        """A generation: the first, or the one after `predecessor`."""
        return self.announce_half(timestamp, predecessor)()

    def announce_half(self, timestamp: int = GENERATION_AT, predecessor: int | None = None) -> Callable[[], Generation]:
        """The description of a generation without its commit record, which the call of what is returned appends."""
        plan = self.options.internal_plan(Internal.GENERATIONS)
        if predecessor is None:
            self._create(plan)
        generation = generation_of(timestamp)
        proposal = Proposal(uuid=uuid4(), predecessor=predecessor, ring=RING, generation=generation)
        *chunks, commit = encode_proposal(proposal)
        self._append(plan, *chunks)

        def publish() -> Generation:
            self._append(plan, commit)
            return generation

        return publish

    def _append(self, plan: TopicPlan, *records: tuple[bytes, bytes]) -> None:
        for key, value in records:
            self._plain.produce(plan.name, key=key, value=value, partition=0)
        assert self._plain.flush(60) == 0

    def add(self, table: Table) -> Encoder:
        """Create a table's topic, and publish its schemas before anything that uses them."""
        if self.topic(table) not in {self.topic(known) for known in self._encoders}:
            self._create(self.options.table_plan(self.topic(table)))
        encoder = self._encoders[table] = Encoder(table, self.options.prefix)
        plan = self.options.internal_plan(Internal.SCHEMAS)
        for key, value in schema_records(encoder, self.topic(table)):
            self._plain.produce(plan.name, key=key, value=value, partition=0)
        assert self._plain.flush(60) == 0
        return encoder

    def publish(self, changes: Iterable[Change], *, commit: bool = True, at: int = 0) -> None:
        """One transaction; `at` is Kafka's timestamp of its records, in milliseconds, 0: now."""
        delivered: Counter[str] = Counter()
        published = 0
        written: set[KafkaPartition] = set()
        self._producer.begin_transaction()
        for change in changes:
            encoder = self._encoders.get(change.table) or self.add(change.table)
            where = partition(change.token, self._grown.get(self.topic(change.table), self.options.partitions))
            name, key, value = self.topic(change.table), encoder.key(change), encoder.value(change)
            written.add((name, where))
            self._producer.produce(
                name, key=key, value=value, partition=where, timestamp=at,
                on_delivery=lambda error, _: delivered.update([str(error)]),
            )  # fmt: skip
            published += 1
        if commit:
            self._producer.commit_transaction(30)
            assert delivered == Counter({"None": published} if published else {})
        else:
            self._producer.flush(60)
            self._producer.abort_transaction(30)
        # Kafka answers before its mark is in every partition; until then nobody reads past the transaction's begin.
        until(lambda: self._are_marked(written), "the transaction's marks")

    def _are_marked(self, written: Collection[KafkaPartition]) -> bool:
        try:
            ends = self._ends.high_watermarks({topic for topic, _ in written})
            return self._ends.of(written) == {partition: ends[partition] for partition in written}
        except ServiceError:  # a broker that has just come back
            return False

    def committed(self, table: Table) -> list[RecordKey]:
        """The places of all records that a read_committed reader finds in a table's topic, in their order."""
        topic = self.topic(table)
        with TopicReader({**self._config}, topic, beginning=True) as reader:
            return sorted((topic, number, record.offset) for number, record in reader.read_to_end())

    def poison(self, table: Table, *values: bytes) -> None:
        """Records that are no changes."""
        for value in values:
            self._plain.produce(self.topic(table), value=value, partition=0)
        assert self._plain.flush(60) == 0

    def end(self, table: Table, number: int) -> int:
        """Where a partition of a table's topic ends; marks of transactions included."""
        where = TopicPartition(self.topic(table), number)
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # theirs
        return int(self._admin.list_offsets({where: latest})[where].result(60).offset)

    def grow(self, table: Table, partitions: int) -> None:
        """Give a table's topic more partitions, which what is published from now on is spread over."""
        growth = [NewPartitions(self.topic(table), partitions)]
        self._admin.create_partitions(growth)[self.topic(table)].result(60)
        self._grown[self.topic(table)] = partitions
        # The producer asks again only after minutes, but for this.
        until(lambda: len(self._partitions(table)) == partitions, "the topic's partitions")

    def _partitions(self, table: Table) -> Collection[int]:
        partitions: Collection[int] = self._producer.list_topics(timeout=60).topics[self.topic(table)].partitions
        return partitions

    def make_again(self, table: Table) -> None:
        """Make the topic of a table again, which somebody deleted."""
        self._create(self.options.table_plan(self.topic(table)))

    def _create(self, plan: TopicPlan) -> None:
        topic = NewTopic(plan.name, plan.partitions, plan.replication(1), config=plan.settings(1))
        self._admin.create_topics([topic])[plan.name].result(60)
