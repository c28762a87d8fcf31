"""Groups of partitions that the opensearch sink merges at once: what each has, and what holds while several write."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.change import Change
from tailrace_schemas.errors import ServiceError
from tailrace_spark.merge.batch_changes import gather
from tailrace_spark.sinks.opensearch.pieces import groups
from tailrace_spark.sinks.protocol import write_here
from tests import java_sources, opensearch
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import delivered, is_cut_off, piece
from tests.unit.spark.sinks.merging_contract import selected, write
from tests.unit.spark.sinks.opensearch.indexes import Searched, overtaken
from tests.unit.spark.sinks.opensearch.proxy import Answer, Asked, SearchProxy, dying
from tests.unit.tables import table

LINES = table({"id": "int"}, {"c": "int"}, regular={"v": "text", "w": "int"}, keyspace="shop", name="lines")
COLUMNS = ("id", "c", "v", "w")
live = pytest.mark.skipif(java_sources.missing() is not None, reason=str(java_sources.missing()))
KINDS: tuple[opensearch.Kind, ...] = ("opensearch", "elasticsearch")


@pytest.mark.slow
@pytest.mark.promise("opensearch.groups")
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), max_size=40),
    st.sets(st.integers(0, 7), max_size=3),
    st.integers(1, 6),
)
def test_each_partition_is_whole_in_one_group(rows: list[tuple[int, int]], deleted: set[int], size: int) -> None:
    log = Log(LINES)
    changes = [log.insert((key,), (at,), 1, w=at) for key, at in rows]
    changes += [log.delete_partition((key,), 2) for key in sorted(deleted)]
    found = gather(map(delivered, changes))
    together = set(found.deletions)
    parts = list(groups(found, size, together))
    assert {key: said for part in parts for key, said in part.rows.items()} == found.rows
    assert sum(len(part.rows) for part in parts) == len(found.rows)
    keys = [{*part.deletions, *(key for key, _ in part.rows)} for part in parts]
    assert sum(map(len, keys)) == len(set[bytes]().union(*keys))
    if together:
        assert parts[0].deletions == found.deletions
        assert keys[0] == together
    for part in parts[bool(together) :]:
        largest = max(sum(row_key[0] == key for row_key in part.rows) for key, _ in part.rows)
        assert len(part.rows) < size + largest


@pytest.fixture(params=KINDS)
def proxy(request: pytest.FixtureRequest) -> Iterator[SearchProxy]:
    made = SearchProxy(opensearch.server(request.param).url)
    yield made
    made.close()


def in_groups(proxy: SearchProxy, **settings: object) -> Searched:
    """A sink whose groups are one row or one partition."""
    return Searched(proxy.url, proxy.address, **{"bulk_documents": 2, "retry_seconds": 0.01, **settings})


def first_and_second() -> tuple[list[Change], list[Change]]:
    """Rows of several partitions; and the same, changed twice each, with a range and a partition deleted, and new."""
    log = Log(LINES)
    first = [log.insert((key,), (at,), 1, v=f"{key}/{at}") for key in range(3) for at in range(2)]
    second = [
        change
        for key in range(5)
        for change in (
            log.update((key,), (0,), 3, v="later"),
            log.update((key,), (0,), 2, v="earlier", w=key),
            log.delete((key,), (1,), 3),
            log.insert((key,), (1,), 4 if key % 2 else 2, w=1),
        )
    ]
    return first, [*second, log.delete_range((0,), (0,), (1,), 5), log.delete_partition((1,), 6)]


def require_select(searched: Searched, changes: Sequence[Change], why: str = "") -> None:
    assert searched.rows(LINES, *COLUMNS) == selected(LINES, list(changes), *COLUMNS), why


@pytest.mark.promise("opensearch.groups")
@live
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("lost", ["drop", "drop after"])
def test_a_crash_while_several_groups_write_heals(proxy: SearchProxy, lost: Answer) -> None:
    """From some request on nothing arrives, or the answer of that one is lost; then the batch comes again."""
    first, second = first_and_second()
    for step in count(0, 5):
        proxy.answer = lambda _: "pass"
        searched = in_groups(proxy)
        write(searched, *first)
        proxy.answer = dying(len(proxy.asked) + step, lost)
        died = is_cut_off(searched.open(), piece(second))
        proxy.answer = lambda _: "pass"
        write(searched, *second)
        require_select(searched, [*first, *second], f"died after {step} requests")
        before = searched.everything()
        write(searched, *second, *first)
        assert searched.everything() == before
        if not died:
            assert step >= 10
            return


@pytest.mark.promise("opensearch.groups")
@live
@pytest.mark.long
def test_another_s_write_under_several_groups_is_read_and_merged(proxy: SearchProxy) -> None:
    """Of one group a row, of another the whole partition, of a third a row that is to be new."""
    searched, log = in_groups(proxy, retry_seconds=5), Log(LINES)
    first, second = first_and_second()
    other = [log.update((0,), (0,), 9, v="other"), log.delete_partition((2,), 9), log.insert((4,), (0,), 1, w=7)]
    write(searched, *first)
    overtaken(searched, proxy, "_bulk", *other)
    write(searched, *second)
    require_select(searched, [*first, *other, *second])


@pytest.mark.promise("opensearch.groups")
@live
@pytest.mark.long
def test_so_many_requests_are_under_way_at_once(proxy: SearchProxy) -> None:
    """None of the first three is let through before all three are there."""
    searched, log = in_groups(proxy, bulk_requests=3), Log(LINES)
    write(searched, log.insert((0,), (0,), 1))
    meeting, first = threading.Barrier(3), threading.Semaphore(3)

    def answer(asked: Asked) -> Answer:
        if "_bulk" in asked.path and first.acquire(blocking=False):
            meeting.wait(60)
        return "pass"

    proxy.answer = answer
    changes = [log.insert((key,), (0,), 2, w=key) for key in range(6)]
    write(searched, *changes)
    require_select(searched, [log.insert((0,), (0,), 1), *changes])
    assert not first.acquire(blocking=False)


@pytest.mark.promise("opensearch.groups")
@live
@pytest.mark.long
def test_an_error_is_told_when_no_request_is_under_way(proxy: SearchProxy) -> None:
    """Whoever writes the batch again meets nothing of the first try that is still on its way."""
    searched, log = in_groups(proxy, bulk_requests=2), Log(LINES)
    write(searched, log.insert((0,), (0,), 1))
    told, early, under_way = threading.Event(), list[bool](), threading.Event()

    def answer(asked: Asked) -> Answer:
        if "_bulk" not in asked.path:
            return "pass"
        if b'"id":1,' in asked.body:
            under_way.wait(60)
            return 403, {}, b'{"error": "no"}'
        under_way.set()
        early.append(told.wait(0.5))
        return "pass"

    proxy.answer = answer
    with closing(searched.open()) as sink:
        with pytest.raises(ServiceError, match="403"):
            write_here(sink, [piece([log.insert((key,), (0,), 2, w=key) for key in (1, 2)])])
        told.set()
    assert early == [False]
