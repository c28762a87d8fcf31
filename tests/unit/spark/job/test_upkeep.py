"""What a sink is given between micro-batches, and when."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.avro import Encoder, SchemaEntry
from tailrace_schemas.errors import ServiceError, UnsupportedError
from tailrace_schemas.position import Position
from tailrace_schemas.progress import Progress
from tailrace_schemas.table import Table
from tailrace_spark.job.offsets import Offsets
from tailrace_spark.job.upkeep import Completeness, Upkeep, WatermarkTracker, published_to
from tailrace_spark.sinks.protocol import Watermark
from tests.support.clock import ManualClock
from tests.unit.spark.published import entry_of
from tests.unit.tables import table

ORDERS = table({"id": "int"}, keyspace="shop", name="orders")
WIDER = table({"id": "int"}, regular={"v": "int"}, keyspace="shop", name="orders")
OTHERS = table({"id": "int"}, keyspace="shop", name="others")
POSITION = Position(1, 2, 3)
TOPICS = ("t.a", "t.b")


class Schemas(dict[bytes, SchemaEntry]):
    """`.schemas`, as far as it is written."""

    failure: Exception | None = None

    def announce(self, definition: Table, part: str = "value") -> None:
        """The next record."""
        encoder = Encoder(definition, "t", "partition")
        value = entry_of(encoder, f"t.{definition}", len(self))
        entry = value if part == "value" else replace(value, schema_id=encoder.key_schema_id, part="key")
        self[entry.schema_id] = entry

    def refresh(self) -> None:
        """Fail, if it is to."""
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """Nothing is open."""


class Sink:
    """Notes what it is given; `failure` is raised once."""

    lateness_ms = 100

    def __init__(self, using: threading.Lock) -> None:
        self.announced: list[list[tuple[int, Table]]] = []
        self.watermarks: list[Watermark] = []
        self.failure: Exception | None = None
        self._using = using

    def announce(self, definitions: Iterable[tuple[int, Table]]) -> None:
        """Never while somebody else uses the sink."""
        assert self._using.locked()
        self.announced.append(list(definitions))
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

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


@pytest.mark.promise("log-tables.columns")
def test_a_sink_is_given_the_tables_that_the_stream_reads_in_the_order_of_their_definitions() -> None:
    schemas, using, clock = Schemas(), threading.Lock(), ManualClock()
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
    clock.now += 2
    upkeep.run(dict)
    assert sink.announced[1:] == [[(3, ORDERS)]]
    clock.now += 2
    upkeep.run(dict)
    assert len(sink.announced) == 2, "nothing is new"
    schemas.announce(WIDER)
    clock.now += 2
    upkeep.run(dict)
    assert sink.announced[2:] == [[(4, WIDER)]], "announced again: the newest definition once more"


@pytest.mark.parametrize("failure", [ServiceError, UnsupportedError, ZeroDivisionError])
@pytest.mark.parametrize("where", ["Kafka", "sink"])
def test_what_fails_is_said_once_and_tried_again(
    where: str, failure: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    """Also a bug of ours: the stream goes on."""
    schemas, using, clock = Schemas(), threading.Lock(), ManualClock()
    sink = Sink(using)
    schemas.announce(ORDERS)
    upkeep = Upkeep(sink, schemas, Hosts(), lambda _: True, using, clock)
    for _ in range(2):
        schemas.failure = failure("away") if where == "Kafka" else None
        sink.failure = failure("away") if where == "sink" else None
        upkeep.run(dict)
        clock.now += 2
    schemas.failure = sink.failure = None
    upkeep.run(dict)
    assert sink.announced[-1] == [(0, ORDERS)]
    assert [record.getMessage() for record in caplog.records] == [
        "log tables or their watermarks are not up to date; trying again: away"
    ]


def test_a_sink_is_told_what_is_complete_once_the_stream_has_written_it() -> None:
    """Progress is read before the ends: a change becomes visible before or with the progress that covers it."""
    schemas, using, clock, hosts = Schemas(), threading.Lock(), ManualClock(), Hosts()
    sink = Sink(using)
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


def progress(host: str, complete_to: int | None, parked: int = 0) -> Progress:
    """A host's newest record."""
    return Progress("c", host, POSITION, POSITION, 9_999, True, parked, 0, complete_to)


def test_the_slowest_host_decides() -> None:
    found = published_to([progress("a", 5_000), progress("b", 4_000)], {"a", "b"}, 1_000)
    assert found == Completeness(3_000, "host b")


@pytest.mark.promise("log-tables.watermark")
@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([], "no host has published progress yet"),
        ([progress("a", 5_000)], "host b has published no progress yet"),
        ([progress("a", 5_000), progress("b", None)], "host b has not published its log to the end yet"),
        ([progress("a", 5_000), progress("b", 5_000, parked=2)], "host b has 2 parked mutations: see tailrace parked"),
    ],
)
def test_without_any_of_its_hosts_nothing_is_known(records: list[Progress], words: str) -> None:
    found = published_to(records, {"a", "b"} if records else set(), 0)
    assert found.time is None
    assert found.waits_for.startswith(words)


def test_a_host_that_left_the_ring_counts_until_it_is_retired() -> None:
    found = published_to([progress("a", 5_000), progress("gone", 100)], {"a"}, 0)
    assert found == Completeness(100, "host gone, which is not in the ring any more: see tailrace hosts retire")


def step(marks: WatermarkTracker, published: int | None, ends: Offsets, written: Offsets) -> dict[str, int | None]:
    """The times of both topics."""
    found = marks.step(Completeness(published, "host a"), ends, written, TOPICS)
    return {topic: complete.time for topic, complete in found.items()}


@pytest.mark.promise("log-tables.watermark")
def test_a_topic_is_complete_once_the_stream_has_written_up_to_its_ends() -> None:
    marks = WatermarkTracker()
    ends = {("t.a", 0): 10, ("t.a", 1): 5, ("t.b", 0): 0}
    assert step(marks, 1_000, ends, {}) == {"t.a": None, "t.b": 1_000}, "nothing was ever written to b"
    # Other ends, of changes that are later than the mark: they are not waited for.
    later = {("t.a", 0): 99, ("t.a", 1): 99, ("t.b", 0): 7}
    assert step(marks, 2_000, later, {("t.a", 0): 10, ("t.a", 1): 4}) == {"t.a": None, "t.b": 1_000}
    assert step(marks, 2_000, later, {("t.a", 0): 10, ("t.a", 1): 5}) == {"t.a": 1_000, "t.b": 1_000}
    assert step(marks, 2_000, later, later) == {"t.a": 2_000, "t.b": 2_000}
    assert step(marks, 3_000, later, later) == {"t.a": 3_000, "t.b": 3_000}


def test_what_it_waits_for_is_told() -> None:
    marks = WatermarkTracker()
    [found] = marks.step(Completeness(5, "host a"), {("t.a", 0): 1}, {}, ["t.a"]).values()
    assert found == Completeness(None, "the stream, which has not written everything yet")
    [found] = marks.step(Completeness(5, "host a"), {("t.a", 0): 1}, {("t.a", 0): 1}, ["t.a"]).values()
    assert found == Completeness(5, "host a")
    [found] = marks.step(Completeness(None, "host b is away"), {("t.a", 0): 1}, {}, ["t.a"]).values()
    assert found == Completeness(5, "host b is away"), "what was complete stays so"


@pytest.mark.promise("log-tables.watermark")
def test_a_topic_that_is_gone_or_made_again_is_not_complete_by_what_was_written_of_the_former_one() -> None:
    marks, partition = WatermarkTracker(), ("t.a", 0)
    assert step(marks, 1_000, {partition: 100}, {partition: 100})["t.a"] == 1_000
    assert step(marks, 2_000, {partition: 120}, {partition: 100})["t.a"] == 1_000
    assert step(marks, 3_000, {}, {partition: 100})["t.a"] == 1_000
    assert step(marks, 4_000, {partition: 20}, {partition: 100})["t.a"] == 1_000, "the stream has not noticed yet"
    assert step(marks, 5_000, {partition: 20}, {})["t.a"] == 1_000
    assert step(marks, 6_000, {partition: 30}, {partition: 20})["t.a"] == 5_000, "120 records are waited for no more"


@pytest.mark.promise("log-tables.watermark")
@pytest.mark.slow
@given(st.data())
def test_it_never_runs_ahead_of_the_data(data: st.DataObject) -> None:
    """A history of one partition: each moment it grows, hosts publish, the stream writes some of what is there."""
    marks, end, written, published = WatermarkTracker(), 0, 0, 0
    needed: list[tuple[int, int]] = []
    for moment in range(data.draw(st.integers(1, 20))):
        end += data.draw(st.integers(0, 3))
        if data.draw(st.booleans()):
            published = moment
            needed.append((published, end))  # all of before that time is at or below this offset
        written = data.draw(st.integers(written, end))
        seen = data.draw(st.integers(end, end + 2))  # the ends are asked for later
        complete = step(marks, published, {("t.a", 0): seen}, {("t.a", 0): written})["t.a"]
        end = max(end, seen)
        for time, offset in needed:
            if complete is not None and time <= complete:
                assert offset <= written
