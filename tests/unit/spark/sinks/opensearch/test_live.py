"""The opensearch sink against a real OpenSearch: the contract of merging sinks, and what readers find."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tailrace_common.settings import load_settings
from tailrace_schemas.errors import ServiceError
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.registry import open_sink
from tests import java_sources, opensearch
from tests.support.shop import PLAIN, WIDE_COLUMNS
from tests.unit.spark.cassandra import Log, truncate
from tests.unit.spark.sinks.contract import piece
from tests.unit.spark.sinks.merging_contract import WIDE, MergingContract, StoppedWriterContract, selected, write
from tests.unit.spark.sinks.opensearch.indexes import Searched, SearchedInTasks
from tests.unit.spark.sinks.opensearch.proxy import SearchProxy
from tests.unit.spark.sinks.pages import run, write_by_page
from tests.unit.spark.sinks.row_filter_contract import RowFilterContract
from tests.unit.tables import table

pytestmark = pytest.mark.skipif(java_sources.missing() is not None, reason=str(java_sources.missing()))


@pytest.mark.promise("opensearch.select")
@pytest.mark.long
class TestOpensearch(MergingContract, StoppedWriterContract, RowFilterContract):
    sink = "opensearch"
    kind: opensearch.Kind = "opensearch"

    @pytest.fixture
    def server(self) -> str:
        return Searched(opensearch.server(self.kind).url).version

    @pytest.fixture
    def another(self) -> Callable[[], Searched]:
        return lambda: Searched(opensearch.server(self.kind).url)


@pytest.mark.promise("opensearch.select")
@pytest.mark.long
class TestElasticsearch(TestOpensearch):
    kind = "elasticsearch"


@pytest.mark.promise("opensearch.select")
@pytest.mark.integration
@pytest.mark.spine
class TestOpensearchInTasks(MergingContract, StoppedWriterContract, RowFilterContract):
    sink = "opensearch, tasks"

    @pytest.fixture
    def server(self) -> str:
        return Searched(opensearch.server().url).version

    @pytest.fixture
    def another(self) -> Callable[[], SearchedInTasks]:
        return lambda: SearchedInTasks(opensearch.server().url)


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
    write(searched, truncate(log.table, "h", 50))
    assert searched.rows(WIDE, "c") == []


@pytest.mark.long
def test_the_registry_opens_it_and_the_page_s_example_runs(
    searched: Searched, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.toml"
    path.write_text(f'[sink.x]\ntype = "opensearch"\nurl = "{searched.url}"\nindex = "{searched.prefix}.{{table}}"\n')
    with closing(open_sink("x", load_settings(path, {}).sink["x"], "p")) as sink:
        sink.reach()
        write_here(sink, [piece([Log(PLAIN).insert((1,), (), 1, v="a")])])
    assert searched.rows(PLAIN, "id", "v") == [(1, "a")]
    write_by_page("opensearch", tmp_path, url=searched.url, username=None, password=None)
    searched.call("POST", "/shop.plain/_refresh")
    run("opensearch", url=searched.url)
    assert capsys.readouterr().out == "1 a\n"


@pytest.mark.long
def test_what_is_no_search_server_is_told(proxy: SearchProxy) -> None:
    proxy.answer = lambda _: (200, {}, b"[]")
    words = "neither OpenSearch nor Elasticsearch: look at url"
    with closing(Searched(proxy.url, proxy.address).open()) as sink, pytest.raises(ServiceError, match=words):
        sink.reach()
