"""What a sink is given between micro-batches, and when."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

import pytest

from tailrace_schemas.avro import Encoder, SchemaEntry
from tailrace_schemas.errors import ServiceError, UnsupportedError
from tailrace_schemas.position import Position
from tailrace_schemas.progress import Progress
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import Piece, Summary
from tailrace_spark.job.upkeep import Upkeep
from tailrace_spark.sinks.protocol import Capabilities, Watermark
from tests.support.here_sink import HereSink
from tests.unit.tables import table

ORDERS = table({"id": "int"}, keyspace="shop", name="orders")
WIDER = table({"id": "int"}, regular={"v": "int"}, keyspace="shop", name="orders")
OTHERS = table({"id": "int"}, keyspace="shop", name="others")


class Schemas(dict[bytes, SchemaEntry]):
    """`.schemas`, as far as it is written."""

    failure: Exception | None = None

    def announce(self, definition: Table, part: str = "value") -> None:
        """The next record."""
        encoder = Encoder(definition, "t", "partition")
        value = SchemaEntry(
            schema_id=encoder.schema_id,
            topic=f"t.{definition}",
            table=definition,
            avro=encoder.schema_text,
            announced=len(self),
        )
        entry = value if part == "value" else replace(value, schema_id=encoder.key_schema_id, part="key")
        self[entry.schema_id] = entry

    def refresh(self) -> None:
        """Fail, if it is to."""
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """Nothing is open."""


class Sink(HereSink):
    """Notes what it is given; `failure` is raised once."""

    def __init__(self, using: threading.Lock) -> None:
        self.announced: list[list[tuple[int, Table]]] = []
        self.failure: Exception | None = None
        self._using = using

    def take(self, pieces: Iterable[Piece]) -> Summary:
        """Nothing comes."""
        raise AssertionError(list(pieces))

    def announce(self, definitions: Iterable[tuple[int, Table]]) -> None:
        """Never while somebody else uses the sink."""
        assert self._using.locked()
        self.announced.append(list(definitions))
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(announcements=self)

    def close(self) -> None:
        """Nothing is open."""


class MarkedSink(Sink):
    """One that tells its readers how far it is complete."""

    lateness_ms = 100

    def __init__(self, using: threading.Lock) -> None:
        super().__init__(using)
        self.watermarks: list[Watermark] = []

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(announcements=self, watermarks=self)

    def complete(self, watermarks: Iterable[Watermark]) -> None:
        """Never while somebody else uses the sink."""
        assert self._using.locked()
        self.watermarks = list(watermarks)


class Hosts:
    """One host. What it is asked for, in order."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.complete_to = 1_000
        self.end = 3

    def progress(self) -> list[Progress]:
        """One record."""
        self.asked.append("progress")
        return [Progress("c", "a", Position(1, 2, 3), Position(1, 2, 3), 9, True, 0, 0, self.complete_to)]

    def ring(self) -> list[str]:
        """That host."""
        return ["a"]

    def ends(self, topics: Iterable[str]) -> dict[tuple[str, int], int]:
        """One partition of each topic."""
        self.asked.append("ends")
        return {(topic, 0): self.end for topic in topics}

    def close(self) -> None:
        """Nothing is open."""


class Clock:
    """Stands still."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.mark.promise("log-tables.columns")
def test_a_sink_is_given_the_tables_that_the_stream_reads_in_the_order_of_their_definitions() -> None:
    schemas, using, clock = Schemas(), threading.Lock(), Clock()
    sink = Sink(using)
    schemas.announce(WIDER)
    schemas.announce(OTHERS)
    schemas.announce(ORDERS, "key")
    upkeep = Upkeep(sink, schemas, Hosts(), lambda topic: topic != "t.shop.others", using, clock)
    upkeep.run(dict)
    assert sink.announced == [[(0, WIDER)]]
    schemas.announce(ORDERS)
    upkeep.run(dict)
    assert len(sink.announced) == 1, "it is not time yet"
    clock.seconds += 2
    upkeep.run(dict)
    assert sink.announced[1:] == [[(3, ORDERS)]]
    clock.seconds += 2
    upkeep.run(dict)
    assert len(sink.announced) == 2, "nothing is new"
    schemas.announce(WIDER)
    clock.seconds += 2
    upkeep.run(dict)
    assert sink.announced[2:] == [[(4, WIDER)]], "announced again: the newest definition once more"


@pytest.mark.parametrize("failure", [ServiceError, UnsupportedError, ZeroDivisionError])
@pytest.mark.parametrize("where", ["Kafka", "sink"])
def test_what_fails_is_said_once_and_tried_again(
    where: str, failure: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    """Also a bug of ours: the stream goes on."""
    schemas, using, clock = Schemas(), threading.Lock(), Clock()
    sink = Sink(using)
    schemas.announce(ORDERS)
    upkeep = Upkeep(sink, schemas, Hosts(), lambda _: True, using, clock)
    for _ in range(2):
        schemas.failure = failure("away") if where == "Kafka" else None
        sink.failure = failure("away") if where == "sink" else None
        upkeep.run(dict)
        clock.seconds += 2
    schemas.failure = sink.failure = None
    upkeep.run(dict)
    assert sink.announced[-1] == [(0, ORDERS)]
    assert [record.getMessage() for record in caplog.records] == [
        "log tables or their watermarks are not up to date; trying again: away"
    ]


def test_a_sink_is_told_what_is_complete_once_the_stream_has_written_it() -> None:
    """Progress is read before the ends: a change becomes visible before or with the progress that covers it."""
    schemas, using, clock, hosts = Schemas(), threading.Lock(), Clock(), Hosts()
    sink = MarkedSink(using)
    schemas.announce(ORDERS)
    upkeep = Upkeep(sink, schemas, hosts, lambda _: True, using, clock)
    upkeep.run(lambda: None)
    assert sink.watermarks == [], "what the stream has written is not known yet"
    upkeep.run(lambda: {("t.shop.orders", 0): 2}, now=True)
    [watermark] = sink.watermarks
    assert (watermark.table, watermark.complete_until) == (ORDERS, None)
    assert hosts.asked == ["progress", "ends"]
    hosts.end, hosts.complete_to = 9, 5_000
    upkeep.run(lambda: {("t.shop.orders", 0): 3}, now=True)
    assert [watermark.complete_until for watermark in sink.watermarks] == [900]
    upkeep.run(lambda: {("t.shop.orders", 0): 9}, now=True)
    assert [watermark.complete_until for watermark in sink.watermarks] == [4_900]
