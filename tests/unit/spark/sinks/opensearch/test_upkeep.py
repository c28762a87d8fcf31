"""Purging on a real search server: deletions are forgotten a merge horizon after they were written and came."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import replace
from itertools import count
from typing import Any
from uuid import UUID

import pytest

from tailrace_schemas.change import Change, Op, Origin
from tailrace_schemas.errors import ServiceError
from tailrace_spark.batch.delivery import Summary
from tailrace_spark.sinks.opensearch.sink import OpensearchSink
from tailrace_spark.sinks.protocol import write_here
from tests.support.expiry import SECOND, Time, expiring
from tests.support.shop import PLAIN
from tests.support.shop import WIDE as WITH_PLAINS_ID
from tests.unit.spark.cassandra import Log, source
from tests.unit.spark.sinks.contract import piece
from tests.unit.spark.sinks.opensearch.indexes import Searched
from tests.unit.spark.sinks.opensearch.proxy import Answer, Asked, SearchProxy

pytestmark = pytest.mark.timeout(600)

WIDE = replace(WITH_PLAINS_ID, id=UUID(int=9))
HORIZON = 1_000
NOW = 100_000


def at(seconds: int) -> int:
    """A write time, in microseconds, so many seconds from NOW."""
    return (NOW + seconds) * SECOND


def searched_by(proxy: SearchProxy) -> Searched:
    """New indexes, which are swept whenever they are asked to be."""
    return Searched(proxy.url, proxy.address, merge_horizon_seconds=HORIZON, sweep_seconds=0.001, retry_seconds=0.01)


def kept(searched: Searched) -> int:
    """How many documents there are of rows and partitions, shown or not."""
    searched.call("POST", f"/{searched.prefix}.*/_refresh")
    kinds: dict[str, Any] = {"terms": {"__tailrace.kind": ["row", "partition"]}}
    return int(searched.call("GET", f"/{searched.prefix}.*/_count", {"query": kinds})["count"])


def write(sink: OpensearchSink, *changes: Change) -> Summary:
    return write_here(sink, [piece(changes)])


@pytest.mark.promise("opensearch.purge")
@pytest.mark.long
def test_what_only_deletes_goes_and_what_is_shown_stays(proxy: SearchProxy) -> None:
    searched, time = searched_by(proxy), Time(NOW)
    plain, wide = Log(PLAIN), Log(WIDE)
    with closing(searched.open(time)) as sink:
        write(
            sink,
            plain.insert((1,), (), at(0), v="a"), plain.update((1,), (), at(1), w=None), plain.delete((2,), (), at(0)),
            plain.delete_partition((3,), at(2)), expiring(plain.update((4,), (), at(0), v="x"), NOW + 5),
            wide.insert((1,), (1,), at(0), v="a"), wide.static((1,), at(0), s=None),
            wide.delete_range((1,), (5,), (6,), at(0)),
        )  # fmt: skip
        time.now += 10
        sink.sweep()
        shown = searched.rows(PLAIN, "id", "v", "w"), searched.search(WIDE)
        assert shown[0] == [(1, "a", None)]
        before = kept(searched)
        time.now = NOW + HORIZON - 1
        sink.sweep()
        assert kept(searched) == before == 6
        time.now = NOW + HORIZON + 10
        sink.sweep()
        assert (searched.rows(PLAIN, "id", "v", "w"), searched.search(WIDE)) == shown
        assert kept(searched) == 2
        everything = searched.everything()
        time.now += 1
        sink.sweep()
        assert searched.everything() == everything


@pytest.mark.promise("opensearch.purge")
@pytest.mark.long
def test_of_a_row_the_older_tombstone_goes_and_the_newer_one_stays(proxy: SearchProxy) -> None:
    """So a write between the two is merged, and one that the newer tombstone covers shows nothing."""
    searched, time, log = searched_by(proxy), Time(NOW), Log(PLAIN)
    with closing(searched.open(time)) as sink:
        write(sink, log.insert((1,), (), at(0), v=None), log.update((1,), (), at(5), w=None))
        time.now = NOW + HORIZON + 2
        sink.sweep()
        between = [log.update((1,), (), at(4), v="x"), log.update((1,), (), at(4), w=7)]
        assert write(sink, *between) == Summary(2, 1)
        assert write(sink, log.update((1,), (), at(0), v="late")) == Summary(0, 0, 1)
        assert searched.rows(PLAIN, "id", "v", "w") == [(1, "x", None)]


@pytest.mark.long
def test_what_came_late_is_kept_as_long(proxy: SearchProxy) -> None:
    searched, time, log = searched_by(proxy), Time(NOW), Log(PLAIN)
    with closing(searched.open(time)) as sink:
        write(sink, log.delete((2,), (), at(-50_000)), log.delete_partition((3,), at(-50_000)))
        time.now = NOW + HORIZON - 1
        sink.sweep()
        assert kept(searched) == 2
        assert write(sink, log.insert((2,), (), at(-50_001), v="older")) == Summary(1, 0)
        time.now = NOW + HORIZON
        sink.sweep()
        assert kept(searched) == 0


@pytest.mark.promise("opensearch.purge")
@pytest.mark.long
def test_what_is_as_old_as_what_was_forgotten_is_set_aside(proxy: SearchProxy) -> None:
    """By another process too. What a snapshot reads is not."""
    searched, time, log, other = searched_by(proxy), Time(NOW), Log(PLAIN), Log(WIDE)
    with closing(searched.open(time)) as sink, closing(searched.open(time)) as another:
        write(sink, log.delete((2,), (), at(5)), log.insert((1,), (), at(6), v="a"))
        write(another, log.insert((7,), (), at(7), v="x"))
        time.now = NOW + HORIZON + 5
        sink.sweep()
        late, newer = log.insert((2,), (), at(5), v="again"), log.insert((3,), (), at(6), v="b")
        read = replace(log.insert((4,), (), at(1), v="read"), op=Op.READ)
        snapshot = replace(log.insert((5,), (), at(1), v="s"), source=replace(source(), origin=Origin.SNAPSHOT))
        unconcerned = other.insert((1,), (1,), at(0), v="other")
        assert write(another, late, newer, read, snapshot, unconcerned) == Summary(4, 4, 1)
        assert searched.rows(PLAIN, "id") == [(1,), (3,), (4,), (5,), (7,)]
        [letter] = searched.letters.all
        assert str(at(5)) in letter.reason
        assert "merge_horizon" in letter.reason
        assert write(sink, log.delete((1,), (), at(4))) == Summary(0, 0, 1)


@pytest.mark.promise("opensearch.purge")
@pytest.mark.long
def test_a_purge_cut_off_at_any_request_brings_nothing_back(proxy: SearchProxy) -> None:
    """A change as old as what may have gone is merged into what is there, or too late."""
    log = Log(PLAIN)
    for step in count():
        proxy.answer = lambda _: "pass"
        searched, time = searched_by(proxy), Time(NOW)
        with closing(searched.open(time)) as sink:
            write(sink, *(log.delete((number,), (), at(number)) for number in range(3)))
            write(sink, log.insert((9,), (), at(9), v="x"))
        time.now = NOW + HORIZON + 10
        proxy.answer = dying(len(proxy.asked) + step // 2, "drop after" if step % 2 else "drop")
        died = True
        with closing(searched.open(time)) as sink, suppress(ServiceError):
            sink.sweep()
            died = False
        proxy.answer = lambda _: "pass"
        with closing(searched.open(time)) as sink:
            write(sink, *(log.insert((number,), (), at(number) - 1, v="old") for number in range(3)))
            assert searched.rows(PLAIN, "id") == [(9,)], f"died after {step} requests"
            time.now += HORIZON + 10
            sink.sweep()
        assert kept(searched) == 1
        if not died:
            return


@pytest.mark.promise("opensearch.purge")
@pytest.mark.long
def test_a_document_that_another_writes_meanwhile_stays(proxy: SearchProxy) -> None:
    """It is found to be a tombstone alone; then its row is written again."""
    searched, time, log = searched_by(proxy), Time(NOW), Log(PLAIN)
    with closing(searched.open(time)) as sink:
        write(sink, log.delete((1,), (), at(0)), log.delete((2,), (), at(0)))
    time.now = NOW + HORIZON + 10
    direct = Searched(proxy.url)
    direct.prefix, direct.settings = searched.prefix, searched.settings.model_copy(update={"url": proxy.url})
    written = list[bool]()

    def beside(asked: Asked) -> Answer:
        if "_bulk" in asked.path and b'"delete"' in asked.body and not written:
            written.append(True)
            with closing(direct.open(time)) as another:
                write(another, log.insert((1,), (), at(HORIZON + 5), v="new"))
        return "pass"

    with closing(searched.open(time)) as sink:
        proxy.answer = beside
        sink.sweep()
        assert written
        assert searched.rows(PLAIN, "id", "v") == [(1, "new")]
        assert kept(searched) == 1


def dying(limit: int, lost: Answer) -> Any:
    """From a request on nothing arrives; of that one perhaps only the answer is lost."""
    return lambda asked: "pass" if asked.number < limit else lost if asked.number == limit else "drop"


@pytest.mark.promise("opensearch.purge")
@pytest.mark.long
def test_what_another_forgets_between_two_questions_brings_nothing_back(proxy: SearchProxy) -> None:
    """A replay of dead letters is told of a table in one request, and of its partitions in later ones."""
    searched = in_small_requests(proxy, 2)
    direct, log, time = Searched(proxy.url, merge_horizon_seconds=HORIZON, sweep_seconds=0.001), Log(WIDE), Time(NOW)
    direct.prefix, direct.settings = searched.prefix, searched.settings.model_copy(update={"url": proxy.url})
    with closing(searched.open(time)) as sink, closing(direct.open(time)) as another:
        write(another, *(log.delete_partition((n,), at(1)) for n in range(1, 4)))
        time.now += HORIZON + 5
        asked = count()

        def answer(one: Asked) -> Answer:
            if "_mget" in one.path and b"#partition" in one.body and next(asked) == 1:
                another.sweep()
            return "pass"

        late = [log.insert((n,), (1,), at(0), v="late") for n in range(1, 4)]
        write(sink, log.insert((9,), (1,), at(9), v="y"))
        proxy.answer = answer
        assert write(sink, *late) == Summary(dead_letters=3)
        proxy.answer = lambda _: "pass"
    assert searched.rows(WIDE, "id") == [(9,)]


def in_small_requests(proxy: SearchProxy, documents: int) -> Searched:
    """As `searched_by`, with so many documents in each request."""
    return Searched(
        proxy.url, proxy.address, merge_horizon_seconds=HORIZON, sweep_seconds=0.001, retry_seconds=0.01,
        bulk_documents=documents,
    )  # fmt: skip
