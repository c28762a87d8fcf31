"""Debezium's own JDBC sink and unwrapping transform, in a real Kafka Connect, on what the Kafka sink writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest
import sqlalchemy as sa

from tailrace.local import LocalKafka
from tailrace_schemas.change import Change
from tailrace_spark.sinks.changelog.sink import ChangeLogSink
from tailrace_spark.sinks.images.store import ImageStore
from tailrace_spark.sinks.kafka.outlet import KafkaOutlet
from tailrace_spark.sinks.protocol import write_here
from tests import postgres
from tests.integration.topics import target_of
from tests.services.connect import LocalConnect, jdbc_sink
from tests.support.waiting import until
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import Topic
from tests.unit.tables import table

CART = table(
    {"customer": "text"},
    {"line": "int"},
    {"note": "text"},
    {"amount": "int", "price": "decimal", "since": "timestamp", "day": "date", "photo": "blob", "tags": "set<text>"},
    keyspace="shop",
    name="cart",
    table_id=UUID(int=5),
)
LOG = Log(CART)
_SECONDS: Final = 120.0


def await_equal(read: Callable[[], Any], wanted: Any) -> None:
    """Return once what is read is what is wanted; fail with what it is otherwise."""
    until(lambda: read() == wanted, f"{wanted}", _SECONDS, state=read)


class Rows:
    """The tables of a database that Connect writes."""

    def __init__(self, url: str) -> None:
        self._engine = sa.create_engine(url)

    def of(self, name: str, columns: str, order: str) -> list[tuple[Any, ...]]:
        """Rows, none where there is no table yet."""
        with self._engine.connect() as connection:
            if name not in sa.inspect(connection).get_table_names():
                return []
            found = connection.exec_driver_sql(f'SELECT {columns} FROM "{name}" ORDER BY {order}')
            return [tuple(bytes(one) if isinstance(one, memoryview) else one for one in row) for row in found]

    def close(self) -> None:
        self._engine.dispose()


@contextmanager
def jdbc_sinks(kafka: LocalKafka, topic: str, url: str, directory: Path) -> Iterator[Rows]:
    """A worker that writes a topic's events into PostgreSQL: as they are, and unwrapped first; and its static rows."""
    with jdbc_sink(url) as common:
        unwrap = {"transforms": "unwrap", "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState"}
        connectors = {
            "events": {**common, "topics": topic, "collection.name.format": "cart"},
            "unwrapped": {**common, **unwrap, "topics": topic, "collection.name.format": "unwrapped"},
            "static": {**common, "topics": f"{topic}.static", "collection.name.format": "notes"},
        }
        with LocalConnect(directory, kafka.bootstrap, connectors), closing(Rows(url)) as rows:
            yield rows


@pytest.mark.promise("debezium.jdbc")
@pytest.mark.long
def test_debeziums_jdbc_sink_follows_the_source(kafka: LocalKafka, prefix: str, tmp_path: Path) -> None:
    target = target_of(prefix, partitions=2, format="debezium", images="sqlite://")
    topic, columns = Topic("t.shop.cart"), "customer, line, amount, price, since::text, day::text, photo, tags::text"

    def write(*changes: Change) -> None:
        images = ImageStore(f"sqlite:///{tmp_path}/images.db")
        with closing(ChangeLogSink(KafkaOutlet({"bootstrap.servers": kafka.bootstrap}, target), images)) as sink:
            assert write_here(sink, [topic.piece(*changes)]).dead_letters == 0

    write(
        LOG.insert(("ann",), (1,), 10, amount=5, price="1.10", since=1_700_000_000_123, day=19_000, photo=b"\x00\xff"),
        LOG.insert(("ann",), (2,), 10, amount=6, tags={"=": "", "b": "", "a": ""}),
        LOG.insert(("bob",), (1,), 10, amount=7),
        LOG.update(("bob",), (2,), 10, amount=8),
        LOG.static(("ann",), 11, note="hello"),
        LOG.static(("bob",), 11, note="hello, too"),
        LOG.update(("ann",), (1,), 20, amount=None),
    )
    first = ("ann", 1, None, "1.10", "2023-11-14 22:13:20.123", "2022-01-08", b"\x00\xff", None)
    second = ("ann", 2, 6, None, None, None, None, '["a","b"]')
    bob = [("bob", line, amount, None, None, None, None, None) for line, amount in ((1, 7), (2, 8))]
    with jdbc_sinks(kafka, f"{prefix}-out.cart", postgres.new_database(), tmp_path / "connect") as rows:

        def all_rows() -> list[list[tuple[Any, ...]]]:
            by_key = [rows.of(name, columns, "customer, line") for name in ("cart", "unwrapped")]
            return [*by_key, rows.of("notes", "customer, note", "customer")]

        await_equal(all_rows, [[first, second, *bob]] * 2 + [[("ann", "hello"), ("bob", "hello, too")]])
        write(
            LOG.delete_range(("ann",), (2,), (), 30),
            LOG.delete_partition(("bob",), 30),
            LOG.update(("bob",), (2,), 9, amount=1),
        )
        await_equal(all_rows, [[first]] * 2 + [[("ann", "hello")]])
