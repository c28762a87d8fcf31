"""What a real OpenSearch refuses or puts off, how it is reached, and indices that are taken away or are not ours."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest

from tailrace_schemas.errors import ServiceError
from tailrace_spark.batch.delivery import Summary
from tailrace_spark.sinks.protocol import write_here
from tests import java_sources, opensearch
from tests.support.shop import PLAIN
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import piece
from tests.unit.spark.sinks.merging_contract import WIDE, write
from tests.unit.spark.sinks.opensearch.indexes import Searched
from tests.unit.spark.sinks.opensearch.proxy import Answer, Asked, SearchProxy
from tests.unit.tables import table

pytestmark = pytest.mark.skipif(java_sources.missing() is not None, reason=str(java_sources.missing()))


@pytest.mark.promise("opensearch.busy")
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


@pytest.mark.promise("opensearch.busy")
@pytest.mark.long
def test_a_server_that_asks_for_more_patience_holds_the_batch(proxy: SearchProxy) -> None:
    searched = Searched(proxy.url, proxy.address, retry_seconds=1)
    headers = {"Retry-After": "7200", "Content-Type": "text/plain; charset=idna"}
    proxy.answer = lambda _: (429, headers, b"{}")
    with pytest.raises(ServiceError, match=r"HTTP 429: \{\}; it asks to come again in 7200 s"):
        write(searched, Log(PLAIN).insert((1,), (), 1, v="a"))
    assert len(proxy.asked) == 1


@pytest.mark.promise("opensearch.busy")
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


@pytest.mark.promise("opensearch.remade-index")
@pytest.mark.long
def test_an_index_that_is_taken_away_is_made_again_and_never_by_the_server(searched: Searched) -> None:
    log = Log(PLAIN)
    with closing(searched.open()) as sink:
        write_here(sink, [piece([log.insert((1,), (), 1, v="a")])])
        [index] = searched.call("GET", f"/_alias/{searched.alias(PLAIN)}")
        searched.call("DELETE", f"/{index}")
        with pytest.raises(ServiceError, match="no such index"):
            write_here(sink, [piece([log.insert((2,), (), 1, v="b")])])
        assert searched.call("GET", f"/_cat/indices/{searched.prefix}*?format=json") == []
        write_here(sink, [piece([log.insert((2,), (), 1, v="b")])])
    assert searched.rows(PLAIN, "id", "v") == [(2, "b")]


@pytest.mark.promise("opensearch.remade-index")
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


@pytest.mark.promise("opensearch.remade-index")
@pytest.mark.long
def test_an_index_that_is_somebody_else_s_is_left_alone(searched: Searched) -> None:
    searched.call("PUT", f"/{searched.prefix}.shop.plain")
    summary = write(searched, Log(PLAIN).insert((1,), (), 1, v="a"))
    assert "shop.plain is an index that is not this sink's" in summary.refused["shop.plain"]
    searched.call("PUT", f"/{searched.prefix}-other", {"aliases": {f"{searched.prefix}.shop.wide": {}}})
    other = table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name="other", table_id=UUID(int=9))
    summary = write(searched, Log(WIDE).insert((1,), (1,), 1, v="a"), Log(other).insert((1,), (), 1, v="b"))
    assert "shop.wide is an index that is not this sink's" in summary.refused["shop.wide"]
    assert searched.rows(other, "id", "v") == [(1, "b")]
