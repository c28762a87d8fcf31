"""A task's reading: pages in order, one request at a time, again after faults, and no faster than asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import pytest

from tailrace_common.backoff import Timing
from tailrace_schemas.errors import ServiceError
from tailrace_spark.snapshot.pace import Fault, PageSize
from tailrace_spark.snapshot.ranges import Split, TokenRange
from tailrace_spark.snapshot.reading import Page, PageError, PageReader, RangeReader, UnreadableError
from tests.support.clock import ManualClock
from tests.unit.spark.snapshot.pages import columns_page

PIECES = [Split(TokenRange(0, 100), ("a", "b")), Split(TokenRange(100, 200), ("b",))]


@dataclass
class Request:
    """A page that was asked for."""

    cluster: Cluster
    begin: int
    end: int
    rows: int
    host: str | None

    def get(self) -> Page:
        self.cluster.pending -= 1
        self.cluster.fail(self)
        stop = min(self.end, self.begin + self.rows)
        values = [str(key).encode() for key in range(self.begin, stop)]
        return Page(
            columns_page([values]),
            self.cluster.row_octets * len(values),
            str(stop).encode() if stop < self.end else None,
            0,
        )


@dataclass
class Cluster:
    """Has a row for each number; `faults` happen to the requests that come next, None lets one pass.

    Of rows behind `marked` a page of more than `most_rows` fails, at all nodes or at those that are `damaged`.
    """

    faults: list[Fault | None] = field(default_factory=list)
    down: set[str | None] = field(default_factory=set)
    marked: int = 1 << 30
    most_rows: int = 1 << 30
    damaged: set[str | None] | None = None
    row_octets: int = 100
    requests: list[Request] = field(default_factory=list)
    pending: int = 0
    most_pending: int = 0

    def select(
        self, statement: str, values: Sequence[bytes | None], rows: int, paging_state: bytes | None, host: str | None
    ) -> Request:
        assert statement == "SELECT"
        self.pending += 1
        self.most_pending = max(self.pending, self.most_pending)
        start, end = (int.from_bytes(value or b"", "big", signed=True) for value in values)
        begin = start if paging_state is None else int(paging_state)
        self.requests.append(Request(self, begin, end, rows, host))
        return self.requests[-1]

    def fail(self, request: Request) -> None:
        fault = self.faults.pop(0) if self.faults else None
        if request.host in self.down:
            fault = Fault.UNREACHABLE
        hurt = self.damaged is None or request.host in self.damaged
        if hurt and request.rows > self.most_rows and request.begin + request.rows > self.marked:
            raise PageError(Fault.FAILED, "1 failures: READ_TOO_MANY_TOMBSTONES from /127.0.0.1:7000")
        if fault is not None:
            raise PageError(fault, "in vain")


def reader(
    cluster: Cluster,
    time: ManualClock,
    rows: int = 10,
    rate: float | None = None,
    octets: int = 1 << 20,
    *,
    stays: bool = False,
) -> RangeReader:
    pages = PageReader(PageSize(rows, octets), 4, 1.0, Timing(time, time.wait), rate=rate, stays=stays)
    return RangeReader(cluster.select, "shop.orders", "SELECT", pages)


def numbers(pages: Iterable[Page]) -> list[int]:
    return [int(value or b"") for page in pages for value in page.columns[0]]


@pytest.mark.promise("snapshot.limits")
def test_all_rows_come_in_order_with_one_request_at_a_time() -> None:
    cluster, time = Cluster(), ManualClock()
    assert numbers(reader(cluster, time).pages(PIECES)) == list(range(200))
    assert cluster.most_pending == 1
    assert {request.host for request in cluster.requests if request.begin < 100} == {"a"}
    assert {request.host for request in cluster.requests if request.begin >= 100} == {"b"}
    assert time.waits == []


def test_the_next_page_is_asked_for_before_the_rows_of_one_are_taken() -> None:
    cluster = Cluster()
    pages = reader(cluster, ManualClock()).pages(PIECES)
    next(pages)
    assert [request.begin for request in cluster.requests] == [0, 10]


def test_a_timeout_halves_the_page_and_asks_for_the_same_one_again() -> None:
    cluster, time = Cluster([None, Fault.TIMEOUT, Fault.TIMEOUT, None]), ManualClock()
    assert numbers(reader(cluster, time, rows=80).pages(PIECES)) == list(range(200))
    assert [(request.begin, request.rows) for request in cluster.requests[:4]] == [
        (0, 80),
        (80, 80),
        (80, 40),
        (80, 20),
    ]
    assert time.waits == [1.0, 1.0]


@pytest.mark.promise("snapshot.unreadable")
@pytest.mark.parametrize("most_rows", [1, 4, 7])
def test_rows_between_tombstones_come_by_pages_that_are_small_enough(most_rows: int) -> None:
    """Pages of ten fail, and those of four do not: more tombstones than a node passes over stand between the rows."""
    cluster = Cluster(marked=50, most_rows=most_rows)
    assert numbers(reader(cluster, ManualClock(), rows=80).pages(PIECES)) == list(range(200))
    assert any(request.rows == 80 for request in cluster.requests)


@pytest.mark.promise("snapshot.unreadable")
def test_a_row_that_no_page_has_ends_the_read_with_its_table_and_what_to_do() -> None:
    cluster, time = Cluster(marked=50, most_rows=0), ManualClock()
    with pytest.raises(UnreadableError) as refused:
        numbers(reader(cluster, time, rows=80).pages(PIECES))
    words = str(refused.value)
    assert "tokens (0, 100] of shop.orders cannot be read, not even a row at a time: " in words
    assert "READ_TOO_MANY_TOMBSTONES from /127.0.0.1:7000" in words
    assert "raise that, or compact the table" in words
    sizes = [request.rows for request in cluster.requests]
    assert sizes[-4:] == [1, 1, 1, 1]  # as often as `attempts` says, and no more
    assert len(sizes) < 30


@pytest.mark.promise("snapshot.unreadable")
def test_what_one_replica_fails_at_is_asked_of_the_next_one() -> None:
    cluster = Cluster(marked=50, most_rows=0, damaged={"a"})
    assert numbers(reader(cluster, ManualClock()).pages(PIECES[:1])) == list(range(100))
    assert {request.host for request in cluster.requests if request.begin > 50} == {"b"}


@pytest.mark.promise("snapshot.limits")
def test_an_overloaded_node_is_left_alone_for_longer() -> None:
    cluster, time = Cluster([Fault.OVERLOADED, Fault.OVERLOADED]), ManualClock()
    assert numbers(reader(cluster, time).pages(PIECES)) == list(range(200))
    assert time.waits == [4.0, 8.0]
    assert {request.rows for request in cluster.requests} == {10}


@pytest.mark.parametrize(("down", "hosts"), [({"a"}, {"b"}), ({"a", "b"}, {None})])
def test_a_range_of_a_dead_node_is_read_at_the_next_replica_and_in_the_end_anywhere(
    down: set[str | None], hosts: set[str | None]
) -> None:
    cluster = Cluster(down=down)
    assert numbers(reader(cluster, ManualClock()).pages(PIECES[:1])) == list(range(100))
    assert {request.host for request in cluster.requests[2:]} == hosts


def test_after_all_attempts_the_task_fails_and_names_the_range() -> None:
    cluster, time = Cluster([None, *[Fault.TIMEOUT] * 7]), ManualClock()
    with pytest.raises(
        ServiceError, match=r"tokens \(0, 100\] of shop.orders cannot be read after 4 attempts: in vain"
    ):
        numbers(reader(cluster, time).pages(PIECES))
    assert [request.rows for request in cluster.requests[1:]] == [10, 5, 2, 1, 1, 1, 1]
    assert time.waits == [1.0, 1.0, 1.0, 1.0, 2.0, 4.0]


@pytest.mark.promise("snapshot.limits")
@pytest.mark.parametrize("rate", [5.0, 50.0, 1000.0])
def test_rows_come_no_faster_than_asked_for(rate: float) -> None:
    time = ManualClock()
    rows = len(numbers(reader(Cluster(), time, rate=rate).pages(PIECES)))
    assert time.now == pytest.approx(rows / rate, rel=0.01)


def test_pages_have_few_bytes_whatever_their_rows_have() -> None:
    cluster = Cluster(row_octets=1000)
    numbers(reader(cluster, ManualClock(), rows=5000, octets=20_000).pages([Split(TokenRange(0, 3000), ("a",))]))
    assert cluster.requests[0].rows == 200
    assert {request.rows for request in cluster.requests[1:]} == {20}


def size_after(*events: Callable[[PageSize], object]) -> int:
    size = PageSize(5000, 1 << 20)
    for event in events:
        event(size)
    return size.rows


def test_pages_grow_fourfold_up_to_what_was_asked_for() -> None:
    def page(size: PageSize) -> None:
        size.took(size.rows, size.rows * 10)

    assert [size_after(*[page] * count) for count in range(5)] == [200, 800, 3200, 5000, 5000]
    assert size_after(*[PageSize.halve] * 9) == 1
    assert size_after(*[PageSize.halve] * 9, page) == 4


def test_a_reader_that_stays_asks_no_other_node_for_one_that_is_down() -> None:
    cluster, time = Cluster(down={"a"}), ManualClock()
    with pytest.raises(ServiceError, match="after 3 attempts"):
        numbers(reader(cluster, time, stays=True).pages(PIECES))
    assert [request.host for request in cluster.requests] == ["a"] * 3
    # What is slow is asked again as often as ever.
    cluster = Cluster(faults=[Fault.TIMEOUT] * 3)
    assert numbers(reader(cluster, time, stays=True).pages(PIECES)) == list(range(200))
