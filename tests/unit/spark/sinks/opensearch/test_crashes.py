"""Crashes at any request to a real OpenSearch, kills of either side, and several that write at a time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import count, cycle
from pathlib import Path

import pytest

from tailrace_schemas.change import Change
from tailrace_schemas.errors import ServiceError
from tailrace_spark.sinks.opensearch.sink import OpensearchSink
from tailrace_spark.sinks.protocol import write_here
from tests import java_sources, opensearch
from tests.support.expiry import SECOND
from tests.support.shop import ORDERS, PLAIN, WIDE_COLUMNS
from tests.support.waiting import until
from tests.unit.spark.cassandra import Log, truncate
from tests.unit.spark.sinks.contract import is_cut_off, piece
from tests.unit.spark.sinks.lake.current_contract import batches, require_select
from tests.unit.spark.sinks.merging_contract import WIDE, selected, write
from tests.unit.spark.sinks.opensearch.dying import batch
from tests.unit.spark.sinks.opensearch.indexes import Searched, overtaken
from tests.unit.spark.sinks.opensearch.proxy import Answer, Asked, SearchProxy, dying
from tests.unit.tables import table

pytestmark = pytest.mark.skipif(java_sources.missing() is not None, reason=str(java_sources.missing()))


@pytest.mark.promise("opensearch.select")
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_crash_at_any_request_heals(proxy: SearchProxy) -> None:
    """The answer of some request is lost, as is all behind it. Then the batch is redelivered in three ways."""
    for step, again in zip(count(), cycle(("whole", "cut", "with others")), strict=False):
        proxy.answer = lambda _: "pass"
        searched = Searched(proxy.url, proxy.address, retry_seconds=0.01)
        first, second, third = batches()
        write(searched, *first)
        proxy.answer = dying(len(proxy.asked) + step, "drop after")
        died = is_cut_off(searched.open(), piece(second))
        proxy.answer = lambda _: "pass"
        if again == "whole":
            write(searched, *second)
        elif again == "cut":
            for at in range(0, len(second), 5):
                write(searched, *second[at : at + 5])
        else:
            write(searched, *third, *second)
        expected = [*first, *second, *(third if again == "with others" else [])]
        require_select(searched, expected, f"died after {step} requests")
        write(searched, *third)
        require_select(searched, [*first, *second, *third], f"died after {step} requests")
        if not died:
            assert step >= 20
            return


@pytest.mark.promise("opensearch.select")
@pytest.mark.long
def test_a_deletion_cut_off_at_any_request_is_brought_to_its_end(proxy: SearchProxy) -> None:
    """Also where the partition is next written by another batch, of another row."""
    of = table({"id": "int"}, {"c": "int"}, regular={"v": "text"}, keyspace="shop", name="lines")
    log = Log(of)
    first = [log.insert((key,), (n,), 1, v="a") for key in (1, 2) for n in range(4)]
    deletions = [log.delete_range((1,), (1,), (2,), 5), log.delete_partition((2,), 5)]
    other = [log.insert((1,), (9,), 1, v="b"), log.insert((2,), (9,), 9, v="b")]
    for step in count():
        proxy.answer = lambda _: "pass"
        searched = Searched(proxy.url, proxy.address, retry_seconds=0.01)
        write(searched, *first)
        proxy.answer = dying(len(proxy.asked) + step, "drop after")
        died = is_cut_off(searched.open(), piece(deletions))
        proxy.answer = lambda _: "pass"
        again = deletions if step % 2 else []
        write(searched, *other, *again)
        write(searched, *deletions)
        assert searched.rows(of, "id", "c", "v") == selected(of, [*first, *deletions, *other], "id", "c", "v"), step
        if not died:
            assert step >= 5
            return


@pytest.mark.promise("opensearch.select")
@pytest.mark.long
def test_a_process_killed_in_the_middle_of_a_batch(searched: Searched) -> None:
    """SIGKILL at several moments of a batch of many bulk requests, which then comes again."""
    rows = 600
    expected = selected(WIDE, batch(rows), *WIDE_COLUMNS)
    program = [sys.executable, "-m", "tests.unit.spark.sinks.opensearch.dying", searched.url]
    cut = set()
    for there in (1, 100, 300, 500):
        one = Searched(searched.url)
        process = subprocess.Popen([*program, one.prefix, str(rows)])
        while process.poll() is None and _documents(one) < there:
            pass
        process.kill()
        process.wait()
        cut.add(_documents(one))
        write(one, *batch(rows))
        assert one.rows(WIDE, *WIDE_COLUMNS) == expected
        before = one.everything()
        write(one, *batch(rows))
        assert one.everything() == before
    assert any(0 < number < rows for number in cut)


def _documents(searched: Searched) -> int:
    if not searched.call("GET", f"/_cat/indices/{searched.prefix}.*?format=json"):
        return 0
    searched.call("POST", f"/{searched.prefix}.*/_refresh")
    return int(searched.call("GET", f"/{searched.prefix}.*/_count")["count"])


@pytest.mark.promise("opensearch.select")
@pytest.mark.long
def test_a_server_killed_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    """The same sink goes on when it is back, with what was not answered."""
    with opensearch.OpenSearch(tmp_path / "node") as node:
        searched = Searched(node.url, retry_seconds=0.1, bulk_documents=20)
        proxy = SearchProxy(node.url)
        searched.settings = searched.settings.model_copy(update={"url": proxy.address})
        bulks: list[Asked] = []

        def killing(asked: Asked) -> Answer:
            if "_bulk" in asked.path:
                bulks.append(asked)
                if len(bulks) == 12:
                    node.kill()
            return "pass"

        proxy.answer = killing
        changes = batch(600)
        try:
            with closing(searched.open()) as sink:
                with pytest.raises(ServiceError, match=r"http://127\.0\.0\.1:\d+"):
                    write_here(sink, [piece(changes)])
                with pytest.raises(ServiceError):
                    write_here(sink, [piece(changes)])
                node.start()
                until_written(sink, changes)
                assert write_here(sink, [piece(changes)]).rows == 0
        finally:
            proxy.close()
        assert searched.rows(WIDE, *WIDE_COLUMNS) == selected(WIDE, changes, *WIDE_COLUMNS)


def until_written(sink: OpensearchSink, changes: Sequence[Change]) -> None:
    """As the stream holds a batch: a server that has just begun has not all shards yet."""

    def is_written() -> bool:
        with suppress(ServiceError):
            write_here(sink, [piece(changes)])
            return True
        return False

    until(is_written, "a server that takes the batch")


@pytest.mark.promise("opensearch.two-writers")
@pytest.mark.long
def test_of_two_writers_neither_loses_what_the_other_wrote(searched: Searched) -> None:
    """Both write the same rows, statics and range deletions at the same time, in pieces."""
    log = Log(WIDE)
    parts = [
        [
            change
            for n in range(60)
            for change in (
                log.update((n % 3,), (n % 10,), 10 + 2 * n + writer, v=f"{writer}/{n}"),
                log.insert((n % 3,), (10 + n % 5,), 5 + 3 * n + writer),
                *([log.static((n % 3,), 10 + 2 * n + writer, s=f"{writer}/{n}")] if n % 9 == writer else []),
                *([log.delete_range((n % 3,), (n % 7,), (n % 7 + 2,), 8 + 2 * n)] if n % 8 == writer else []),
            )
        ]
        for writer in range(2)
    ]
    write(searched, log.insert((0,), (0,), 1, v="first"))  # else both make the index

    def write_all(changes: list[Change]) -> None:
        with closing(searched.open()) as sink:
            for at in range(0, len(changes), 7):
                write_here(sink, [piece(changes[at : at + 7])])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write_all, parts))
    changes = [log.insert((0,), (0,), 1, v="first"), *parts[0], *parts[1]]
    assert searched.rows(WIDE, *WIDE_COLUMNS) == selected(WIDE, changes, *WIDE_COLUMNS)


@pytest.mark.promise("opensearch.two-writers")
@pytest.mark.long
@pytest.mark.parametrize("at", ["_bulk", "_refresh", "_search"])
def test_who_is_overtaken_reads_and_merges_again(proxy: SearchProxy, at: str) -> None:
    searched, log = Searched(proxy.url, proxy.address), Log(WIDE)
    first = [log.insert((1,), (n,), 1, v="a") for n in range(4)]
    write(searched, *first)
    other = [log.update((1,), (1,), 3, v="other"), log.static((1,), 2, s="S"), log.delete_range((1,), (2,), (2,), 5)]
    mine = [log.update((1,), (1,), 2, v="mine"), log.update((1,), (2,), 4, v="mine"), log.insert((1,), (9,), 2)]
    overtaken(searched, proxy, at, *other)
    write(searched, *mine)
    assert searched.rows(WIDE, *WIDE_COLUMNS) == selected(WIDE, [*first, *other, *mine], *WIDE_COLUMNS)


@pytest.mark.promise("opensearch.two-writers")
@pytest.mark.long
def test_a_deletion_by_another_while_a_new_row_is_written_covers_it(proxy: SearchProxy) -> None:
    """The row is merged by what was known of its partition before: that it changed is seen behind the write."""
    searched, log = Searched(proxy.url, proxy.address), Log(ORDERS)
    first = log.insert(("a",), (1, 1), 1, note="first")
    write(searched, first)
    overtaken(searched, proxy, "_bulk", log.delete_range(("a",), (5,), (6,), 9), log.delete_partition(("b",), 9))
    write(searched, log.insert(("a",), (5, 5), 2, note="late"), log.insert(("b",), (1, 1), 2, note="late"))
    assert searched.rows(ORDERS, "note") == [("first",)]


@pytest.mark.promise("opensearch.two-writers")
@pytest.mark.long
def test_another_s_truncation_is_known_before_anything_is_written(proxy: SearchProxy) -> None:
    searched, log = Searched(proxy.url, proxy.address), Log(PLAIN)
    write(searched, log.insert((1,), (), 1, v="a"))
    with closing(searched.open()) as sink:
        write_here(sink, [piece([log.insert((2,), (), 2, v="b")])])
        overtaken(searched, proxy, "_bulk", truncate(log.table, "h", 50 * SECOND))
        write_here(sink, [piece([log.insert((3,), (), 3, v="c"), log.insert((4,), (), 60 * SECOND, v="d")])])
    assert searched.rows(PLAIN, "id") == [(4,)]


@pytest.mark.promise("opensearch.remade-index")
@pytest.mark.long
def test_a_remade_index_is_seen_whole_or_not_at_all(proxy: SearchProxy) -> None:
    """Whoever dies while a column goes leaves readers the old index, and begins anew."""
    gone = table({"id": "int"}, regular={"w": "int"}, dropped={"v": ("text", 20)}, keyspace="shop", name="plain")
    for step in count():
        proxy.answer = lambda _: "pass"
        searched = Searched(proxy.url, proxy.address, retry_seconds=0.01, bulk_documents=2)
        rows = [Log(PLAIN).insert((n,), (), 10, v="a", w=n) for n in range(3)]
        write(searched, *rows)
        proxy.answer = dying(len(proxy.asked) + step)
        died = is_cut_off(searched.open(), piece([Log(gone).update((1,), (), 30, w=9)]))
        proxy.answer = lambda _: "pass"
        found = searched.rows(PLAIN, "id")
        assert found == [(n,) for n in range(3)], f"died after {step} requests"
        write(searched, Log(gone).update((1,), (), 30, w=9))
        assert searched.rows(gone, "id", "w", "v") == [(n, 9 if n == 1 else n, None) for n in range(3)]
        assert set(searched.columns(gone)) == {"id", "w"}
        if not died:
            return
