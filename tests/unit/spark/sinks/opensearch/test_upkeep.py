"""Purging on a real search server: deletions are forgotten a merge horizon after they were written and came."""

from __future__ import annotations

from contextlib import closing, suppress
from itertools import count

import pytest

from tailrace_schemas.errors import ServiceError
from tailrace_spark.batch.delivery import Summary
from tests import java_sources, opensearch
from tests.support.expiry import Time
from tests.support.shop import PLAIN
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.opensearch.indexes import Searched
from tests.unit.spark.sinks.opensearch.proxy import Answer, Asked, SearchProxy, dying
from tests.unit.spark.sinks.purging_contract import HORIZON, NOW, WIDE, PurgingContract, at, write

pytestmark = pytest.mark.timeout(600)


@pytest.mark.promise("opensearch.purge")
@pytest.mark.long
@pytest.mark.skipif(java_sources.missing() is not None, reason=str(java_sources.missing()))
class TestOpensearchPurges(PurgingContract):
    states, side_by_side = 6, True

    @pytest.fixture
    def purged(self) -> Searched:
        return Searched(opensearch.server().url, merge_horizon_seconds=HORIZON, sweep_seconds=0.001)


def searched_by(proxy: SearchProxy, **more: object) -> Searched:
    """New indexes, which are swept whenever they are asked to be."""
    swept = {"merge_horizon_seconds": HORIZON, "sweep_seconds": 0.001, "retry_seconds": 0.01}
    return Searched(proxy.url, proxy.address, **swept, **more)


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
        assert searched.kept() == 1
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
    direct = searched.direct()
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
        assert searched.kept() == 1


@pytest.mark.promise("opensearch.purge")
@pytest.mark.long
def test_what_another_forgets_between_two_questions_brings_nothing_back(proxy: SearchProxy) -> None:
    """A replay of dead letters is told of a table in one request, and of its partitions in later ones."""
    searched = searched_by(proxy, bulk_documents=2)
    log, time = Log(WIDE), Time(NOW)
    with closing(searched.open(time)) as sink, closing(searched.direct().open(time)) as another:
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
