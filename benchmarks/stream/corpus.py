"""The topics that the stream's benchmark reads: several tables, published as agents publish."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tailrace_common.settings import TopicSettings
from tailrace_schemas.avro import Encoder, schema_records
from tailrace_schemas.change import Cell, Change, Marker, Op, Origin, Source
from tailrace_schemas.cql.types import parse_type
from tailrace_schemas.cql.values import codec, join_key
from tailrace_schemas.generation_records import Proposal, encode_proposal
from tailrace_schemas.position import Position
from tailrace_schemas.ring import Node, Ring
from tailrace_schemas.streams import build_generation
from tailrace_schemas.table import Column, ColumnKind, Table
from tailrace_schemas.tokens import partition, token
from tailrace_schemas.topics import Internal, TopicPlan, table_topic

PARTITIONS: Final = 3
_HOSTS: Final = tuple(f"{number}1111111-0000-0000-0000-000000000000" for number in range(1, 10))
_TRANSACTION: Final = 4_000
_RANGES: Final = 64


def _table(number: int, name: str, key: dict[str, str], clustering: dict[str, str], regular: dict[str, str]) -> Table:
    def columns(given: dict[str, str], kind: ColumnKind) -> tuple[Column, ...]:
        keyed = kind is not ColumnKind.REGULAR
        names = given if keyed else sorted(given)
        return tuple(
            Column(n, n.encode(), kind, parse_type(given[n]), at if keyed else -1) for at, n in enumerate(names)
        )

    return Table(
        keyspace="bench",
        name=name,
        id=UUID(int=0x2BE43760E57F11F1859973518CFF4400 + number),
        partition_key=columns(key, ColumnKind.PARTITION_KEY),
        clustering=columns(clustering, ColumnKind.CLUSTERING),
        static=(),
        regular=columns(regular, ColumnKind.REGULAR),
        cdc=True,
    )


Values = Callable[[int], tuple[tuple[object, ...], tuple[object, ...], dict[str, object]]]
"""Partition key, clustering and columns of the row of a number."""

TABLES: Final[tuple[tuple[Table, Values], ...]] = (
    (
        _table(1, "orders", {"customer": "text"}, {"number": "int"}, {"amount": "double", "note": "text", "n": "int"}),
        lambda n: ((f"customer-{n // 16}",), (n % 16,), {"amount": n / 7, "note": f"note of {n}", "n": n}),
    ),
    (
        _table(2, "users", {"id": "uuid"}, {}, {"name": "text", "email": "text", "age": "int"}),
        lambda n: ((str(UUID(int=n << 64 | n)),), (), {"name": f"user {n}", "email": f"{n}@x.org", "age": n % 90}),
    ),
    (
        _table(3, "readings", {"sensor": "int"}, {"at": "bigint"}, {"value": "double", "unit": "text", "ok": "int"}),
        lambda n: ((n % 5_000,), (n,), {"value": n * 0.25, "unit": "celsius", "ok": n % 3}),
    ),
    (
        _table(4, "accounts", {"id": "bigint"}, {}, {"sum": "decimal", "tags": "frozen<list<int>>", "at": "bigint"}),
        lambda n: ((n,), (), {"sum": f"{n}.25", "tags": [n, 2], "at": n * 1000}),
    ),
)  # fmt: skip


def change(number: int, written: int, replica: int = 0, row: int | None = None) -> Change:
    """The INSERT of one row, as one of its replicas has it; the tables take turns. `written` is in microseconds.

    With a `row` it is the UPDATE of two columns of the row that this number was inserted as.
    """
    inserted = number if row is None else row
    table, values = TABLES[inserted % len(TABLES)]
    key, clustering, _ = values(inserted // len(TABLES))
    *_, columns = values(number // len(TABLES))
    types = [column.type for column in table.partition_key]
    serialized = join_key(types, [codec(t).encode(v) for t, v in zip(types, key, strict=True)])
    return Change(
        op=Op.INSERT if row is None else Op.UPDATE,
        table=table,
        token=token(serialized),
        key=serialized,
        clustering=tuple(codec(c.type).encode(v) for c, v in zip(table.clustering, clustering, strict=True)),
        marker=Marker(written) if row is None else None,
        cells=tuple(
            Cell(column, None, written, None, None, codec(column.type).encode(columns[column.name]))
            for column in (table.regular if row is None else table.regular[:2])
        ),
        digest=number.to_bytes(16, "big"),  # any will do, if no two are equal
        source=Source(_HOSTS[replica], "dc1", Position(1, 5 + replica, number), 0, 1, Origin.LOG, seen=written // 1000),
    )


class Cluster:
    """One cluster's topics under one prefix, made where they are not there."""

    def __init__(self, bootstrap: str, prefix: str, partitions: int = PARTITIONS) -> None:
        self._config: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 2}
        self.options = TopicSettings(prefix=prefix, partitions=partitions)
        self._encoders = {table: Encoder(table, prefix) for table, _ in TABLES}
        # One batch at a time: of two, a broker may refuse the first of a new topic and take the second (KAFKA-15591).
        own = {"transactional.id": f"{prefix}.bench", "linger.ms": 1, "max.in.flight": 1}
        self._producer = Producer({**self._config, **own})

    def make(self) -> None:
        """Topics, schemas, one generation."""
        admin = AdminClient(self._config)
        plain = Producer({**self._config, "enable.idempotence": True})
        plans = [self.options.internal_plan(one) for one in (Internal.SCHEMAS, Internal.GENERATIONS, Internal.PROGRESS)]
        for plan in (*plans, *(self.options.table_plan(self._topic(table)) for table in self._encoders)):
            _create(admin, plan)
        for table, encoder in self._encoders.items():
            for key, value in schema_records(encoder, self._topic(table)):
                plain.produce(plans[0].name, key=key, value=value, partition=0)
        ring = Ring((Node(_HOSTS[0], "dc1", tuple(range(-(2**63) + 1, 2**63, 2**64 // _RANGES))),))
        generation = build_generation(ring, 8, timestamp=1_000, seed=1)
        proposal = Proposal(uuid=uuid4(), predecessor=None, ring=ring, generation=generation)
        for key, value in encode_proposal(proposal):
            plain.produce(plans[1].name, key=key, value=value, partition=0)
        if plain.flush(60):
            raise RuntimeError("Kafka did not take the schemas and the generation")
        self.join()

    def join(self) -> None:
        """Become the one that publishes, where the topics are there already."""
        self._producer.init_transactions(60)

    def publish(self, changes: Iterator[Change]) -> None:
        """One transaction."""
        self._producer.begin_transaction()
        for one in changes:
            encoder = self._encoders[one.table]
            place = partition(one.token, self.options.partitions)
            self._producer.produce(self._topic(one.table), encoder.value(one), encoder.key(one), place)
            self._producer.poll(0)
        self._producer.commit_transaction(60)

    def fill(self, changes: int, replicas: int = 1, *, updates: bool = False) -> None:
        """So many changes, each once by each replica, as a catch-up leaves them: in large transactions by turns.

        With `updates` the second half of them are updates of the rows of the first.
        """
        now = int(time.time() * 1_000_000)
        inserts = changes // 2 if updates else changes
        for first in range(0, changes, _TRANSACTION):
            for replica in range(replicas):
                numbers = range(first, min(first + _TRANSACTION, changes))
                self.publish(
                    change(number, now + number, replica, number - inserts if number >= inserts else None)
                    for number in numbers
                )

    def _topic(self, table: Table) -> str:
        return table_topic(self.options.prefix, table.keyspace, table.name, table.id)


def prepared(
    bootstrap: str,
    directory: Path,
    changes: int,
    partitions: int = PARTITIONS,
    replicas: int = 1,
    *,
    updates: bool = False,
) -> str:
    """The prefix of topics with so many changes, partitions and copies, made the first time `directory` is used.

    With `updates` half of the changes are of rows that are there.
    """
    note = directory / "corpus.json"
    known: dict[str, str] = json.loads(note.read_text()) if note.exists() else {}
    name = f"{changes} in {partitions}, {replicas} of each" + (", half updates" if updates else "")
    prefix = known.get(name)
    if prefix is None:
        prefix = known[name] = f"bench{uuid4().hex[:8]}"
        cluster = Cluster(bootstrap, prefix, partitions)
        cluster.make()
        cluster.fill(changes, replicas, updates=updates)
        note.write_text(json.dumps(known))
    return prefix


def _create(admin: AdminClient, plan: TopicPlan) -> None:
    topic = NewTopic(plan.name, plan.partitions, plan.replication(1), config=plan.settings(1))
    try:
        admin.create_topics([topic])[plan.name].result(30)
    except KafkaException as error:
        raise RuntimeError(f"{plan.name}: {error}") from error
