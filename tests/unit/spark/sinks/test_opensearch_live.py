"""The opensearch sink against a real OpenSearch: the contract of merging sinks, what breaks, and what searches find."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tailrace_common.settings import load_settings
from tailrace_schemas.change import Change
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.sinks.opensearch import OpensearchSink
from tailrace_spark.sinks.protocol import DeadLetter, Piece, Place, Summary
from tailrace_spark.sinks.registry import open_sink
from tests import opensearch
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import piece
from tests.unit.spark.sinks.dying_search import batch
from tests.unit.spark.sinks.merging_contract import (
    SECOND,
    WIDE,
    MergingContract,
    Time,
    expiring,
    selected,
    truncate,
    write,
)
from tests.unit.spark.sinks.search_proxy import Answer, Asked, SearchProxy
from tests.unit.spark.sinks.searched import Searched
from tests.unit.spark.sinks.test_documents import run
from tests.unit.spark.sinks.test_sql import ORDERS, PLAIN
from tests.unit.tables import table

pytestmark = pytest.mark.skipif(opensearch.missing() is not None, reason=str(opensearch.missing()))
WIDER = replace(PLAIN, regular=table({"id": "int"}, regular={"v": "text", "w": "int", "x": "text"}).regular)
WIDE_COLUMNS = ("id", "c", "s", "v")


@pytest.fixture
def searched() -> Searched:
    return Searched(opensearch.server().url)


@pytest.fixture
def proxy() -> Iterator[SearchProxy]:
    made = SearchProxy(opensearch.server().url)
    yield made
    made.close()


@pytest.mark.long
class TestOpensearch(MergingContract):
    sink = "opensearch"
    kind: opensearch.Kind = "opensearch"

    @pytest.fixture
    def server(self) -> str:
        return Searched(opensearch.server(self.kind).url).version

    @pytest.fixture
    def followed(self) -> Searched:
        return Searched(opensearch.server(self.kind).url)

    @pytest.fixture
    def another(self) -> Callable[[], Searched]:
        return lambda: Searched(opensearch.server(self.kind).url)


@pytest.mark.long
class TestElasticsearch(TestOpensearch):
    kind = "elasticsearch"


def batches() -> list[list[Change]]:
    """Rows made, changed, moved by statics and deleted, a column added, in two tables."""
    plain, wide, log = Log(PLAIN), Log(WIDE), Log(WIDER)
    return [
        [plain.insert((number,), (), 1, v=f"{number}") for number in range(9)]
        + [wide.insert((1,), (number,), 1, v="w") for number in range(3)],
        [plain.update((number,), (), 2, w=number) for number in range(0, 9, 2)]
        + [plain.delete((1,), (), 3), wide.static((1,), 2, s="S"), wide.delete((1,), (0,), 3)]
        + [wide.insert((2,), (1,), 1, v="w"), wide.delete_range((1,), (2,), (2,), 4), log.update((5,), (), 4, x="x")],
        [plain.delete((number,), (), 9) for number in range(3)]
        + [wide.delete_partition((1,), 9), wide.static((2,), 9, s="T"), wide.insert((1,), (2,), 10, v="again")],
    ]


def require_select(searched: Searched, changes: Sequence[Change], why: str = "") -> None:
    for of, columns in ((PLAIN, ("id", "v", "w", "x")), (WIDE, WIDE_COLUMNS)):
        own = [change for change in changes if change.table.name == of.name]
        shape = WIDER if of is PLAIN else of
        assert searched.rows(of, *columns) == selected(shape, own, *columns), why


def dying(limit: int, lost: Answer = "drop") -> Callable[[Asked], Answer]:
    """From a request on nothing arrives; of that one perhaps only the answer is lost."""
    return lambda asked: "pass" if asked.number < limit else lost if asked.number == limit else "drop"


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("again", "lost"), [("whole", "drop after"), ("cut", "drop"), ("with others", "drop after")])
def test_a_crash_at_any_request_heals(proxy: SearchProxy, again: str, lost: Answer) -> None:
    """From some request on nothing arrives, or its answer is lost; then the batch comes again."""
    for step in count():
        proxy.answer = lambda _: "pass"
        searched = Searched(proxy.url, proxy.address, retry_seconds=0.01)
        first, second, third = batches()
        write(searched, *first)
        proxy.answer = dying(len(proxy.asked) + step, lost)
        died = False
        with closing(searched.open()) as sink:
            try:
                sink.write([piece(second)])
            except ServiceError:
                died = True
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
        died = False
        try:
            write(searched, *deletions)
        except ServiceError:
            died = True
        proxy.answer = lambda _: "pass"
        again = deletions if step % 2 else []
        write(searched, *other, *again)
        write(searched, *deletions)
        assert searched.rows(of, "id", "c", "v") == selected(of, [*first, *deletions, *other], "id", "c", "v"), step
        if not died:
            assert step >= 5
            return


@pytest.mark.long
def test_a_process_killed_in_the_middle_of_a_batch(searched: Searched) -> None:
    """SIGKILL at several moments of a batch of many bulk requests, which then comes again."""
    rows = 600
    expected = selected(WIDE, batch(rows), *WIDE_COLUMNS)
    program = [sys.executable, "-m", "tests.unit.spark.sinks.dying_search", searched.url]
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
                with pytest.raises(ServiceError, match=r"^http://127\.0\.0\.1:\d+: "):
                    sink.write([piece(changes)])
                with pytest.raises(ServiceError):
                    sink.write([piece(changes)])
                node.start()
                until_written(sink, changes)
                assert sink.write([piece(changes)]).rows == 0
        finally:
            proxy.close()
        assert searched.rows(WIDE, *WIDE_COLUMNS) == selected(WIDE, changes, *WIDE_COLUMNS)


def until_written(sink: OpensearchSink, changes: Sequence[Change]) -> None:
    """As the stream holds a batch: a server that has just begun has not all shards yet."""
    for _ in range(200):
        with suppress(ServiceError):
            sink.write([piece(changes)])
            return
    raise AssertionError("it is never taken")


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
    failures: list[BaseException] = []

    def write_all(changes: list[Change]) -> None:
        try:
            with closing(searched.open()) as sink:
                for at in range(0, len(changes), 7):
                    sink.write([piece(changes[at : at + 7])])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write_all, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    changes = [log.insert((0,), (0,), 1, v="first"), *parts[0], *parts[1]]
    assert searched.rows(WIDE, *WIDE_COLUMNS) == selected(WIDE, changes, *WIDE_COLUMNS)


def overtaken(searched: Searched, proxy: SearchProxy, at: str, *other: Change) -> None:
    """Another sink writes these changes when the first request comes whose path has this."""
    done: list[bool] = []
    direct = Searched(searched.url)
    direct.prefix, direct.settings = searched.prefix, searched.settings.model_copy(update={"url": searched.url})

    def answer(asked: Asked) -> Answer:
        if at in asked.path and not done:
            done.append(True)
            write(direct, *other)
        return "pass"

    proxy.answer = answer


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


@pytest.mark.long
def test_a_deletion_by_another_while_a_new_row_is_written_covers_it(proxy: SearchProxy) -> None:
    """The row is merged by what was known of its partition before: that it changed is seen behind the write."""
    searched, log = Searched(proxy.url, proxy.address), Log(ORDERS)
    first = log.insert(("a",), (1, 1), 1, note="first")
    write(searched, first)
    overtaken(searched, proxy, "_bulk", log.delete_range(("a",), (5,), (6,), 9), log.delete_partition(("b",), 9))
    write(searched, log.insert(("a",), (5, 5), 2, note="late"), log.insert(("b",), (1, 1), 2, note="late"))
    assert searched.rows(ORDERS, "note") == [("first",)]


@pytest.mark.long
def test_another_s_truncation_is_known_before_anything_is_written(proxy: SearchProxy) -> None:
    searched, log = Searched(proxy.url, proxy.address), Log(PLAIN)
    write(searched, log.insert((1,), (), 1, v="a"))
    with closing(searched.open()) as sink:
        sink.write([piece([log.insert((2,), (), 2, v="b")])])
        overtaken(searched, proxy, "_bulk", truncate(log, "h", 50 * SECOND, 50_000))
        sink.write([piece([log.insert((3,), (), 3, v="c"), log.insert((4,), (), 60 * SECOND, v="d")])])
    assert searched.rows(PLAIN, "id") == [(4,)]


@pytest.mark.long
def test_what_the_server_refuses_is_a_dead_letter_and_all_else_goes_on(searched: Searched) -> None:
    of = table(
        {"id": "int"}, regular={"m": "map<text, int>", "v": "text"}, keyspace="shop", name="maps", table_id=UUID(int=8)
    )
    log, other = Log(of), Log(PLAIN)
    write(searched, log.insert((0,), (), 1, v="a"))
    limit = {"index.mapping.nested_objects.limit": 2}
    searched.call("PUT", f"/{searched.alias(of)}/_settings", limit)
    large: dict[Any, Any] = {"=": None, "a": 1, "b": 2, "c": 3}
    with closing(searched.open()) as sink:
        done = sink.write(
            [
                piece(
                    [
                        log.insert((1,), (), 1, v="b"),
                        log.insert((2,), (), 1, m=large),
                        other.insert((1,), (), 1, v="x"),
                        log.insert((3,), (), 1, m={"=": None, "a": 1}),
                    ]
                )
            ]
        )
    assert done == Summary(3, 3, 1)
    assert searched.rows(of, "id") == [(0,), (1,), (3,)]
    assert searched.rows(PLAIN, "id") == [(1,)]
    [letter] = searched.call("GET", f"/{searched.settings.dead_letters}/_search")["hits"]["hits"]
    assert "nested" in letter["_source"]["reason"]
    assert letter["_source"]["topic"] == "t.ks.t"


@pytest.mark.long
def test_dead_letters_go_into_an_index_that_is_there_already(searched: Searched) -> None:
    """Each place in Kafka once, with its bytes."""
    searched.call("PUT", f"/{searched.settings.dead_letters}")
    letter = DeadLetter(Place("t", 1, 2, b"\xab" * 8), "no change", b"\0bytes")
    for _ in range(2):
        with closing(searched.open()) as sink:
            assert sink.write([Piece((), (letter,))]) == Summary(0, 0, 1)
    assert searched.dead_letters() == 1
    [kept] = searched.call("GET", f"/{searched.settings.dead_letters}/_search")["hits"]["hits"]
    assert kept["_source"] == {
        "topic": "t", "partition": 1, "offset": 2, "schema": "ab" * 8, "reason": "no change", "message": "AGJ5dGVz",
    }  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_waited_for(proxy: SearchProxy, status: int) -> None:
    searched, log = Searched(proxy.url, proxy.address), Log(PLAIN)
    busy = iter(["a", "b", "c"])

    def answer(asked: Asked) -> Answer:
        if "_bulk" in asked.path and next(busy, None):
            return status, {"Retry-After": "0"}, b'{"error":"busy"}'
        return "pass"

    proxy.answer = answer
    write(searched, log.insert((1,), (), 1, v="a"))
    assert searched.rows(PLAIN, "id") == [(1,)]
    assert next(busy, None) is None


@pytest.mark.long
def test_a_server_that_asks_for_more_patience_holds_the_batch(proxy: SearchProxy) -> None:
    searched = Searched(proxy.url, proxy.address, retry_seconds=1)
    proxy.answer = lambda _: (429, {"Retry-After": "7200"}, b"{}")
    with pytest.raises(ServiceError, match=r"HTTP 429: \{\}; it asks to come again in 7200 s"):
        write(searched, Log(PLAIN).insert((1,), (), 1, v="a"))
    assert len(proxy.asked) == 1


@pytest.mark.long
def test_documents_that_are_turned_away_alone_come_again_alone(proxy: SearchProxy) -> None:
    """A full write queue answers 200, and 429 for some of the documents."""
    searched, log = Searched(proxy.url, proxy.address), Log(PLAIN)
    write(searched, log.insert((0,), (), 1, v="a"))
    sent: list[int] = []

    def answer(asked: Asked) -> Answer:
        if "_bulk" not in asked.path:
            return "pass"
        sent.append(asked.body.count(b"\n") // 2)
        if len(sent) > 1:
            return "pass"
        full = {"status": 429, "error": {"type": "es_rejected_execution_exception", "reason": "the queue is full"}}
        items = [{"create": {"_id": str(n), **full}} for n in range(1, 4)]
        return 200, {"Content-Type": "application/json"}, json.dumps({"errors": True, "items": items}).encode()

    proxy.answer = answer
    write(searched, *(log.insert((n,), (), 1, v="b") for n in range(1, 4)))
    assert sent == [3, 3]
    assert searched.rows(PLAIN, "id") == [(0,), (1,), (2,), (3,)]


@pytest.mark.long
def test_a_request_too_large_for_the_server_is_cut(proxy: SearchProxy) -> None:
    searched, log = Searched(proxy.url, proxy.address), Log(PLAIN)

    def answer(asked: Asked) -> Answer:
        return (413, {}, b"") if "_bulk" in asked.path and len(asked.body) > 5_000 else "pass"

    proxy.answer = answer
    rows = [log.insert((n,), (), 1, v="x" * 1_000) for n in range(20)]
    assert write(searched, *rows, log.insert((99,), (), 1, v="x" * 9_000)) == Summary(20, 20, 1)
    assert len(searched.rows(PLAIN, "id")) == 20


@pytest.mark.long
def test_tls_and_a_password(tmp_path: Path) -> None:
    proxy = SearchProxy(opensearch.server().url, secured=tmp_path)
    try:
        login: dict[str, object] = {
            "username": "reader",
            "password": "hunter2",
            "tls_ca_file": str(tmp_path / "ca.pem"),
        }
        searched = Searched(proxy.url, proxy.address, **login)
        write(searched, Log(PLAIN).insert((1,), (), 1, v="a"))
        assert searched.rows(PLAIN, "id", "v") == [(1, "a")]
        wrong = Searched(proxy.url, proxy.address, **{**login, "password": "other-secret"})
        with closing(wrong.open()) as sink, pytest.raises(ServiceError, match=r"HTTP 401.*look at username") as raised:
            sink.reach()
        assert "secret" not in str(raised.value) + repr(wrong.settings)
        stranger = Searched(proxy.url, proxy.address, retry_seconds=0.01)
        with closing(stranger.open()) as sink, pytest.raises(ServiceError, match=r"(?i)certificate"):
            sink.reach()
    finally:
        proxy.close()


@pytest.mark.long
def test_an_index_that_is_taken_away_is_made_again_and_never_by_the_server(searched: Searched) -> None:
    log = Log(PLAIN)
    with closing(searched.open()) as sink:
        sink.write([piece([log.insert((1,), (), 1, v="a")])])
        [index] = searched.call("GET", f"/_alias/{searched.alias(PLAIN)}")
        searched.call("DELETE", f"/{index}")
        with pytest.raises(ServiceError, match="no such index"):
            sink.write([piece([log.insert((2,), (), 1, v="b")])])
        assert searched.call("GET", f"/_cat/indices/{searched.prefix}*?format=json") == []
        sink.write([piece([log.insert((2,), (), 1, v="b")])])
    assert searched.rows(PLAIN, "id", "v") == [(2, "b")]


@pytest.mark.long
def test_an_index_taken_away_under_a_request_is_not_made_by_it(proxy: SearchProxy) -> None:
    searched, log = Searched(proxy.url, proxy.address), Log(PLAIN)
    write(searched, log.insert((1,), (), 1, v="a"))
    [index] = searched.call("GET", f"/_alias/{searched.alias(PLAIN)}")

    def answer(asked: Asked) -> Answer:
        if "_bulk" in asked.path:
            searched.call("DELETE", f"/{index}")
        return "pass"

    proxy.answer = answer
    with pytest.raises(ServiceError, match="no such index"):
        write(searched, log.insert((2,), (), 1, v="b"))
    assert searched.call("GET", f"/_cat/indices/{searched.prefix}*?format=json") == []


@pytest.mark.long
def test_an_index_that_is_somebody_else_s_is_left_alone(searched: Searched) -> None:
    searched.call("PUT", f"/{searched.prefix}.shop.plain")
    with pytest.raises(SettingsError, match=r"shop\.plain is an index that is not this sink's"):
        write(searched, Log(PLAIN).insert((1,), (), 1, v="a"))
    searched.call("PUT", f"/{searched.prefix}-other", {"aliases": {f"{searched.prefix}.shop.wide": {}}})
    with pytest.raises(SettingsError, match=r"shop\.wide is an index that is not this sink's"):
        write(searched, Log(WIDE).insert((1,), (1,), 1, v="a"))


@pytest.mark.long
def test_readers_see_rows_and_nothing_of_the_sink_s(searched: Searched) -> None:
    """Not by searching, counting, or looking a document up; nor rows that were deleted."""
    log = Log(WIDE)
    write(searched, log.static((1,), 1, s="S"), log.insert((1,), (1,), 1, v="a"), log.insert((1,), (2,), 1, v="b"))
    write(searched, log.delete((1,), (2,), 2), log.delete_range((1,), (7,), (9,), 2))
    assert searched.search(WIDE) == [{"_id": "[1,1]", "id": 1, "c": 1, "s": "S", "v": "a"}]
    alias = searched.alias(WIDE)
    assert searched.call("GET", f"/{alias}/_count")["count"] == 1
    assert searched.call("GET", f"/{alias}/_doc/%5B1%2C1%5D")["_source"] == {"id": 1, "c": 1, "s": "S", "v": "a"}


@pytest.mark.long
def test_columns_added_while_it_runs_are_searched(searched: Searched) -> None:
    log = Log(PLAIN)
    with closing(searched.open()) as sink:
        sink.write([piece([log.insert((1,), (), 1, v="a")])])
        sink.write([piece([Log(WIDER).update((1,), (), 2, x="more words")])])
        sink.write([piece([log.update((1,), (), 3, w=4)])])
    assert searched.search(PLAIN, {"match": {"x": "words"}}) == [
        {"_id": "1", "id": 1, "v": "a", "w": 4, "x": "more words"}
    ]
    assert set(searched.columns(PLAIN)) == {"id", "v", "w", "x"}


TYPED = table(
    {"k": "uuid"},
    regular={
        "b": "boolean", "i8": "tinyint", "i16": "smallint", "i64": "bigint", "f": "float", "d": "double",
        "n": "decimal", "big": "varint", "day": "date", "moment": "timestamp", "t": "time", "ip": "inet", "raw": "blob",
        "gap": "duration", "m": "map<text, int>", "l": "list<text>", "st": "set<int>", "u": "addr",
        "tu": "frozen<tuple<int, text>>", "us": "list<frozen<addr>>", "_id": "int", "A b": "text",
        "vec": "vector<float, 2>",
    },
    keyspace="shop",
    name="typed",
)  # fmt: skip
KEY = "00000000-0000-0000-0000-00000000000a"


def nested(path: str, *queries: dict[str, Any]) -> dict[str, Any]:
    """One element of a column that all of the queries find."""
    return {"nested": {"path": path, "query": {"bool": {"filter": list(queries)}}}}


@pytest.mark.long
@pytest.mark.parametrize("kind", ["opensearch", "elasticsearch"])
def test_every_type_is_searched_as_what_it_is(kind: opensearch.Kind) -> None:
    searched = Searched(opensearch.server(kind).url)
    log = Log(TYPED)
    values: dict[str, Any] = {
        "b": True, "i8": -1, "i16": 300, "i64": 2**63 - 1, "f": 1.5, "d": 2.25, "n": "12345678901234567890.50",
        "big": str(2**80), "day": 0, "moment": 1_760_000_000_123, "t": 3_600_000_000_001, "ip": "10.1.2.3",
        "raw": b"\0\xff", "gap": {"months": 1, "days": 2, "nanoseconds": 3}, "m": {"=": None, "x": 1, "y": 2},
        "l": {"=": None, 1: "one", 2: "two words"}, "st": {"=": None, 5: True, 3: True},
        "u": {"=": None, "street": "S", "zip": 7}, "tu": {"f0": 1, "f1": "x"},
        "us": {"=": None, 1: {"street": "A", "zip": 1, "tags": ["t"]}, 2: {"street": "B", "zip": 2, "tags": None}},
        "_id": 9, "A b": "spaced", "vec": [1.0, 2.0],
    }  # fmt: skip
    write(searched, log.insert((KEY,), (), 1, **values))
    [found] = searched.search(TYPED)
    assert found == {
        "_id": KEY, "k": KEY, "b": True, "i8": -1, "i16": 300, "i64": 2**63 - 1, "f": 1.5, "d": 2.25,
        "n": "12345678901234567890.50", "big": str(2**80), "day": "1970-01-01", "moment": "2025-10-09T08:53:20.123Z",
        "t": "01:00:00.000000001", "ip": "10.1.2.3", "raw": "AP8=", "gap": {"months": 1, "days": 2, "nanoseconds": 3},
        "m": [{"key": "x", "value": 1}, {"key": "y", "value": 2}], "l": ["one", "two words"], "st": [3, 5],
        "u": {"street": "S", "zip": 7}, "tu": {"f0": 1, "f1": "x"},
        "us": [{"street": "A", "zip": 1, "tags": ["t"]}, {"street": "B", "zip": 2}], "_id_2": 9, "A_x20_b": "spaced",
        "vec": [1.0, 2.0],
    }  # fmt: skip
    hits: list[dict[str, Any]] = [
        {"term": {"k": KEY}}, {"term": {"b": True}},
        {"range": {"i64": {"gte": 2**63 - 1}}}, {"range": {"f": {"gt": 1}}},
        {"term": {"n": "12345678901234567890.50"}}, {"range": {"n.number": {"gt": 1e19}}},
        {"range": {"big.number": {"gt": 1e24}}}, {"range": {"day": {"lt": "1970-01-02"}}},
        {"range": {"moment": {"gte": "2025-10-09T08:53:20.123Z", "lte": "2025-10-09T08:53:20.123Z"}}},
        {"range": {"t": {"gte": "01:00", "lt": "02:00"}}}, {"term": {"ip": "10.0.0.0/8"}}, {"term": {"gap.days": 2}},
        nested("m", {"term": {"m.key.keyword": "y"}}, {"term": {"m.value": 2}}),
        {"match": {"l": "words"}}, {"term": {"l.keyword": "two words"}}, {"term": {"st": 3}}, {"term": {"u.zip": 7}},
        {"term": {"tu.f0": 1}}, {"term": {"_id_2": 9}}, {"term": {"A_x20_b": "spaced"}},
        nested("us", {"term": {"us.zip": 2}}, {"match": {"us.street": "B"}}),
    ]  # fmt: skip
    misses: list[dict[str, Any]] = [
        nested("m", {"term": {"m.key.keyword": "x"}}, {"term": {"m.value": 2}}),
        {"range": {"moment": {"gt": "2025-10-09T08:53:20.123Z"}}}, {"term": {"ip": "192.168.0.0/16"}},
    ]  # fmt: skip
    assert [query for query in hits if not searched.search(TYPED, query)] == []
    assert [query for query in misses if searched.search(TYPED, query)] == []


@pytest.mark.long
@pytest.mark.parametrize("kind", ["opensearch", "elasticsearch"])
def test_no_value_makes_the_server_refuse_its_row(kind: opensearch.Kind) -> None:
    """What a field cannot index is in the document all the same."""
    searched = Searched(opensearch.server(kind).url)
    log = Log(TYPED)
    odd: list[dict[str, Any]] = [
        {"f": float("nan")}, {"d": float("inf")}, {"d": float("-inf")}, {"f": 3.4028234663852886e38},
        {"n": "1E+400"}, {"n": "9" * 9_000}, {"big": "-" + "9" * 400}, {"day": -(2**31)}, {"day": 2**31 - 1},
        {"moment": 2**63 - 1}, {"moment": -(2**63)}, {"moment": -62_135_596_800_000}, {"moment": 253_402_300_799_999},
        {"t": 86_399_999_999_999}, {"ip": "::ffff:1.2.3.4"}, {"ip": "fe80::1"}, {"A b": "x" * 40_000}, {"A b": ""},
        {"A b": "\0\n\u2028"}, {"l": {"=": None, 1: "y" * 40_000}}, {"raw": b"\1" * 40_000}, {"m": {"=": None, "": 0}},
        {"gap": {"months": -(2**31), "days": 0, "nanoseconds": -(2**63) + 1}},
    ]  # fmt: skip
    keys = [f"00000000-0000-0000-0000-{number:012}" for number in range(len(odd))]
    for key, values in zip(keys, odd, strict=True):
        done = write(searched, log.insert((key,), (), 1, **values))
        assert done == Summary(1, 1, 0), values
    found = {row["k"]: row for row in searched.search(TYPED)}
    assert found.keys() == set(keys)
    shown = [found[key] for key in keys]
    assert [row["f"] for row in (shown[0],)] == ["NaN"]
    assert (shown[1]["d"], shown[2]["d"], shown[5]["n"]) == ("Infinity", "-Infinity", "9" * 9_000)
    assert (shown[7]["day"], shown[9]["moment"], len(shown[16]["A_x20_b"])) == ("-5877641-06-23", 2**63 - 1, 40_000)


@pytest.mark.long
@pytest.mark.parametrize(
    ("types", "key", "identity"),
    [
        ({"k": "text"}, ("ann",), "ann"),
        ({"k": "text"}, ("#x",), None),
        ({"k": "text"}, ("é" * 256,), "é" * 256),
        ({"k": "text"}, ("é" * 256 + "x",), None),
        ({"k": "int"}, (-5,), "-5"),
        ({"k": "text", "l": "int"}, ("a", 1), '["a",1]'),
        ({"k": "timestamp"}, (0,), "1970-01-01T00:00:00.000Z"),
        ({"k": "decimal"}, ("1.0",), None),
        ({"k": "blob"}, (b"\1",), None),
    ],
)
def test_a_document_is_found_by_its_key(
    searched: Searched, types: dict[str, str], key: tuple[object, ...], identity: str | None
) -> None:
    of = table(types, regular={"v": "text"}, keyspace="shop", name="keyed")
    write(searched, Log(of).insert(key, (), 1, v="a"))
    write(searched, Log(of).update(key, (), 2, v="b"))
    [found] = searched.search(of)
    assert found["v"] == "b"
    if identity is None:
        assert len(found["_id"]) == 41
    else:
        assert found["_id"] == identity


@pytest.mark.long
def test_rows_of_equal_clustering_values_are_one_document(searched: Searched) -> None:
    """1.0 and 1.00 are one row, but two partitions."""
    of = table({"k": "decimal"}, {"c": "decimal"}, regular={"v": "text"}, keyspace="shop", name="decimals")
    log = Log(of)
    write(searched, log.insert(("1.0",), ("1.0",), 1, v="a"), log.insert(("1.00",), ("1",), 1, v="b"))
    write(searched, log.insert(("1.0",), ("1.00",), 2, v="c"))
    assert sorted(row["v"] for row in searched.search(of)) == ["b", "c"]


@pytest.mark.long
def test_long_clustering_values_are_deleted_by_range(searched: Searched) -> None:
    """Longer than what is indexed of them."""
    of = table({"k": "int"}, {"c": "text"}, regular={"v": "int"}, keyspace="shop", name="long")
    log = Log(of)
    names = [letter + "x" * 600 + end for letter in "ab" for end in "123"]
    rows = [log.insert((1,), (name,), 1, v=1) for name in names]
    deletion = log.delete_range((1,), (names[1],), (names[3],), 2)
    write(searched, *rows)
    write(searched, deletion)
    assert searched.rows(of, "c") == selected(of, [*rows, deletion], "c")
    write(searched, *rows)
    assert searched.rows(of, "c") == selected(of, [*rows, deletion], "c")


@pytest.mark.long
def test_a_large_partition_is_read_in_pages(searched: Searched) -> None:
    log = Log(WIDE)
    rows = [log.insert((1,), (n,), 1, v=str(n)) for n in range(2_500)]
    write(searched, *rows)
    deletion, static = log.delete_range((1,), (100,), (2_400,), 2), log.static((1,), 2, s="S")
    write(searched, deletion, static)
    assert searched.rows(WIDE, *WIDE_COLUMNS) == selected(WIDE, [*rows, deletion, static], *WIDE_COLUMNS)
    write(searched, truncate(log, "h", 50, 50))
    assert searched.rows(WIDE, "c") == []


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
        died = False
        try:
            write(searched, Log(gone).update((1,), (), 30, w=9))
        except ServiceError:
            died = True
        proxy.answer = lambda _: "pass"
        found = searched.rows(PLAIN, "id")
        assert found == [(n,) for n in range(3)], f"died after {step} requests"
        write(searched, Log(gone).update((1,), (), 30, w=9))
        assert searched.rows(gone, "id", "w", "v") == [(n, 9 if n == 1 else n, None) for n in range(3)]
        assert set(searched.columns(gone)) == {"id", "w"}
        if not died:
            return


@pytest.mark.long
def test_what_expires_is_swept_by_a_sink_that_wrote_none_of_it(searched: Searched) -> None:
    log, time = Log(WIDE), Time()
    write(
        searched, expiring(log.insert((1,), (1,), 1, v="a"), 105), expiring(log.static((1,), 1, s="S"), 110), time=time
    )
    for now, left in ((105, [(1, None, "S", None)]), (110, [])):
        time.now = now
        with closing(searched.open(time)) as sink:
            sink.sweep()
        assert searched.rows(WIDE, *WIDE_COLUMNS) == left


@pytest.mark.long
def test_the_registry_opens_it_and_the_page_s_example_runs(
    searched: Searched, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.toml"
    path.write_text(f'[sink.x]\ntype = "opensearch"\nurl = "{searched.url}"\nindex = "{searched.prefix}.{{table}}"\n')
    with closing(open_sink("x", load_settings(path, {}).sink["x"], "p")) as sink:
        sink.reach()
        sink.write([piece([Log(PLAIN).insert((1,), (), 1, v="a")])])
    assert searched.rows(PLAIN, "id", "v") == [(1, "a")]
    run("opensearch", url=searched.url)
    assert capsys.readouterr().out == "1 a\n"


@pytest.mark.long
def test_what_is_no_search_server_is_told(proxy: SearchProxy) -> None:
    proxy.answer = lambda _: (200, {}, b"[]")
    words = "neither OpenSearch nor Elasticsearch: look at url"
    with closing(Searched(proxy.url, proxy.address).open()) as sink, pytest.raises(ServiceError, match=words):
        sink.reach()
