"""What of the opensearch sink needs no server: settings, mappings, ids, what is stored beside documents."""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tailrace_schemas.change import Deletion
from tailrace_schemas.errors import CorruptError, DecodeError, ServiceError, SettingsError, UnsupportedError
from tailrace_schemas.position import Position
from tailrace_spark.batch.delivery import MicroBatch, Summary
from tailrace_spark.merge.partition import StoredRow
from tailrace_spark.merge.stored_row import ROW
from tailrace_spark.rowstate.truncation import EVERYTHING, HostTruncation, TruncationState
from tailrace_spark.sinks.opensearch.bulk import BulkResult, Op, StoredDocument
from tailrace_spark.sinks.opensearch.client import SearchClient, SearchCluster
from tailrace_spark.sinks.opensearch.documents import OWN, Documents, count_fields, covers
from tailrace_spark.sinks.opensearch.index import Indexes, TableEntry, decode_entry, encode_entry, widens
from tailrace_spark.sinks.opensearch.settings import OpensearchSinkSettings
from tailrace_spark.sinks.opensearch.sink import OpensearchSink
from tailrace_spark.sinks.opensearch.state import (
    PartitionDocument,
    decode_head,
    decode_row,
    encode_head,
    encode_row,
    ordered,
)
from tailrace_spark.sinks.protocol import AGAIN, write_here
from tests import java_sources, opensearch
from tests.support.expiry import Time
from tests.support.shop import ORDERS, PLAIN
from tests.unit.spark.cassandra import Log, clustering_of, key_of
from tests.unit.spark.sinks.contract import piece
from tests.unit.spark.sinks.hostile import LONG_NAMES
from tests.unit.spark.sinks.opensearch.indexes import Searched
from tests.unit.spark.sinks.opensearch.proxy import Answer, Asked, SearchProxy, dying
from tests.unit.spark.sinks.purging_contract import HORIZON, NOW, WIDE, PurgingContract, at, write
from tests.unit.tables import table

optional = st.none() | st.binary(max_size=300)
integers = st.none() | st.integers(-(2**63), 2**63 - 1)
pytestmark = pytest.mark.timeout(600)


def settings(**given: object) -> OpensearchSinkSettings:
    return OpensearchSinkSettings.model_validate({"url": "https://search:9200", **given})


@pytest.mark.promise("sinks.one-table-alone")
@pytest.mark.parametrize(
    ("template", "keyspace", "table", "index"),
    [
        ("{keyspace}.{table}", "Shop", "Orders", "shop.orders"),
        ("{keyspace}.{table}", "_shop", "orders", "shop.orders"),
        ("{table}", "shop", "_orders", "orders"),
        ("{table}", "shop", "_", "table"),
    ],
)
def test_an_index_has_a_name_that_servers_take(template: str, keyspace: str, table: str, index: str) -> None:
    """Without a name, requests would be about all indexes."""
    assert settings(index=template).index_of(keyspace, table) == index


@pytest.mark.promise("sinks.one-table-alone")
@pytest.mark.parametrize("template", ["{keyspace}.{table}", "a.{table}.{keyspace}.z", "{table}-{table}"])
def test_the_longest_names_are_found_again_and_told_apart(template: str) -> None:
    """What expires is looked for in all indexes, by a pattern of the template."""
    indexes = {settings(index=template).index_of(of.keyspace, of.name) for of in LONG_NAMES}
    assert len(indexes) == 2
    assert max(map(len, indexes)) <= 230
    assert all(fnmatchcase(index, template.format(keyspace="*", table="*")) for index in indexes)


def test_secrets_are_in_no_repr_and_read_from_files(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hidden\n")
    given = settings(username="u", password_file=str(tmp_path / "password"))
    assert "hidden" not in repr(given)
    assert given.password is not None
    assert given.password.get_secret_value() == "hidden"
    with pytest.raises(ValidationError, match="both given"):
        settings(username="u", password="twice", password_file=str(tmp_path / "password"))  # noqa: S106 - of nothing


def test_a_certificate_file_that_is_none_is_told_with_its_setting(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(SettingsError, match=r"sink\.search\.tls_ca_file: .*ca\.pem"):
        SearchClient("search", settings(tls_ca_file=str(tmp_path / "ca.pem")))


@given(st.binary(max_size=100), st.lists(optional, max_size=4), st.binary(), integers, integers, st.binary(min_size=1))
def test_a_row_comes_back(
    key: bytes, parts: list[bytes | None], state: bytes, generation: int | None, expires: int | None, stream: bytes
) -> None:
    row = StoredRow((state, generation, None if generation is None else stream), tuple(parts), expires)
    assert decode_row(encode_row(key, row)) == (key, row)


@pytest.mark.slow
@given(
    st.binary(max_size=100),
    st.dictionaries(st.binary(min_size=1, max_size=20), st.tuples(st.binary(), integers, st.binary(min_size=1))),
    st.booleans(),
    integers,
)
def test_a_partition_comes_back(key: bytes, said: dict[bytes, Any], pending: bool, expires: int | None) -> None:
    rows = {at: (at, state, number, None if number is None else id_) for at, (state, number, id_) in said.items()}
    head = PartitionDocument(rows, pending, expires)
    assert decode_head(encode_head(key, head)) == (key, head)


@pytest.mark.parametrize("erased", [None, Deletion(7_000_000, 7), EVERYTHING])
def test_what_is_known_of_a_table_comes_back(erased: Deletion | None) -> None:
    truncations = TruncationState((HostTruncation("host", 5, Position(0, 1, 6), 4),), (4,))
    entry = TableEntry(ORDERS, 3, truncations, 6, erased=erased)
    assert decode_entry(encode_entry(entry)) == entry
    assert decode_entry(encode_entry(replace(entry, leaving=True))) == replace(entry, leaving=True)


def test_a_damaged_record_of_a_table_is_told() -> None:
    damaged = encode_entry(TableEntry(ORDERS, 3, erased=EVERYTHING)).replace(b"%d" % EVERYTHING.written, b'"x"')
    with pytest.raises(CorruptError, match="damaged: `erased` is 'x'"):
        decode_entry(damaged)


def test_truncations_that_are_yet_to_be_erased_add_up() -> None:
    entry = TableEntry(ORDERS, 3)
    older, newer = Deletion(6_000_000, 6), Deletion(7_000_000, 7)
    assert entry.with_erased(None) == entry
    assert entry.with_erased(newer).with_erased(older).erased == newer
    assert entry.with_erased(older).with_erased(newer).with_erased(None).erased == newer
    assert entry.with_erased(EVERYTHING).with_erased(newer).erased == EVERYTHING


@given(st.binary(max_size=60))
def test_bytes_that_no_version_wrote_are_told(encoded: bytes) -> None:
    for decode in (decode_row, decode_head):
        with suppress(DecodeError):
            decode(encoded)
    with pytest.raises((DecodeError, SettingsError)):
        decode_entry(encoded)
    with pytest.raises(UnsupportedError, match="format 2"):
        decode_row(b"\x02" + encoded)


@given(st.lists(st.binary(max_size=600), min_size=2))
def test_what_is_indexed_of_a_clustering_value_orders_as_it_does(values: list[bytes]) -> None:
    values.sort()
    indexed = [ordered(value) for value in values]
    assert indexed == sorted(indexed)
    assert all(len(one) <= 512 for one in indexed)


@pytest.mark.parametrize(
    ("types", "clustering", "key", "at", "identity"),
    [
        ({"k": "text"}, {}, ("ann",), (), "ann"),
        ({"k": "bigint"}, {}, (-(2**63),), (), "-9223372036854775808"),
        ({"k": "text", "l": "int"}, {"c": "date"}, ("a", 1), (0,), '["a",1,"1970-01-01"]'),
        ({"k": "text"}, {"c": "text"}, ('"',), ("]",), '["\\"","]"]'),
        ({"k": "text"}, {}, ("x" * 512,), (), "x" * 512),
        ({"k": "text"}, {}, ("x" * 513,), (), None),
        ({"k": "text"}, {}, ("é" * 257,), (), None),
        ({"k": "text"}, {}, ("",), (), None),
        ({"k": "text"}, {}, ("#table",), (), None),
        ({"k": "decimal"}, {}, ("1.0",), (), None),
        ({"k": "text"}, {"c": "varint"}, ("a",), ("1",), None),
        ({"k": "double"}, {}, (1.0,), (), None),
        ({"k": "inet"}, {}, ("1.2.3.4",), (), None),
        ({"k": "blob"}, {}, (b"a",), (), None),
        ({"k": "boolean"}, {}, (True,), (), None),
    ],
)
def test_ids(
    types: dict[str, str], clustering: dict[str, str], key: tuple[object, ...], at: tuple[object, ...],
    identity: str | None,
) -> None:  # fmt: skip
    of = table(types, clustering, regular={"v": "int"})
    found = Documents(of).id_of((key_of(of, *key), ROW), clustering_of(of, at))
    if identity is None:
        assert found.startswith("#")
        assert len(found) == 41
    else:
        assert found == identity


def test_keys_that_are_none_of_their_types_have_ids_too() -> None:
    of = table({"k": "int"}, regular={"v": "int"})
    documents = Documents(of)
    ids = {documents.id_of((key, ROW), ()) for key in (b"", b"\0", b"\0\0\0\0\0", b"\0\0\0\1")}
    assert len(ids) == 4
    assert "1" in ids


def test_a_mapping_is_covered_by_one_with_more() -> None:
    fields: dict[str, Any] = {"a": {"type": "long"}, "u": {"properties": {"x": {"type": "long"}}}}
    wider = {"properties": {"x": {"type": "long"}, "y": {"type": "ip"}}}
    more = {"a": {"type": "long"}, "b": {"type": "ip"}, "u": wider}
    assert covers(fields, more)
    assert not covers(more, fields)
    assert not covers(fields, {**more, "a": {"type": "integer"}})
    assert not covers(fields, {**more, "u": {"type": "nested", **wider}})
    assert not covers(fields, {**more, "u": {"type": "keyword"}})


def test_fields_are_counted_at_every_depth() -> None:
    assert count_fields(Documents(PLAIN).properties) == (4, 0)  # id, v, v.keyword, w
    of = table({"id": "int"}, regular={"m": "map<text, int>", "us": "list<frozen<addr>>"})
    assert count_fields(Documents(of).properties) == (11, 2)


def test_columns_called_as_the_server_s_own_fields_have_other_names() -> None:
    of = table({"_id": "int"}, regular={"__tailrace": "int", "_source": "int", "A b": "text"}, table_id=UUID(int=3))
    assert list(Documents(of).properties) == ["_id_2", "A_x20_b", "__tailrace_2", "_source_2"]


def test_an_index_in_which_a_new_column_takes_the_name_of_another_is_rebuilt() -> None:
    former = table({"k": "int"}, regular={"_id_2": "int"}, table_id=UUID(int=3))
    definition = table({"k": "int"}, regular={"_id": "int", "_id_2": "int"}, table_id=UUID(int=3))
    assert Documents(definition).properties.items() > Documents(former).properties.items()
    assert not widens(former, definition)
    assert widens(former, table({"k": "int"}, regular={"_id_2": "int", "a": "int"}, table_id=UUID(int=3)))


class OneIndex:
    """A cluster with one index, of which these are the aliases. `record` is the table's there."""

    cluster = SearchCluster("search", settings())

    def __init__(self, index: str, *aliases: str) -> None:
        self._described = {
            "aliases": {alias: {} for alias in (*aliases, f"{index}-write")},
            "mappings": {"_meta": {"tailrace": {"table": str(PLAIN.id)}}},
        }
        self._index = index
        self.record = TableEntry(PLAIN)
        self.while_copied: Callable[[], None] = lambda: None

    def get(self, _path: str) -> dict[str, Any]:
        return {self._index: self._described}

    def put(self, path: str, body: Any) -> None: ...

    def post(self, path: str, body: Any) -> None: ...

    def delete(self, path: str) -> None: ...

    def refresh(self, index: str) -> None: ...

    def documents(self, index: str, ids: list[str], *, source: bool = False) -> dict[str, StoredDocument]:
        assert (index, source) == (self._index, False)
        return {ids[0]: StoredDocument(ids[0], (1, 1), encode_entry(self.record), None)}

    def search(self, index: str, _query: object) -> Iterator[list[StoredDocument]]:
        assert index == self._index
        self.while_copied()
        yield []

    def bulk(self, alias: str, ops: list[Op]) -> BulkResult:
        for op in ops:
            if alias == f"{self._index}-write" and op.document is not None:
                self.record = decode_entry(a2b_base64(op.document[OWN]["state"]))
        return BulkResult({op.id: (1, 1) for op in ops})


@pytest.mark.parametrize("aliases", [("shop.all", "shop.plain"), ("shop.plain", "shop.all")])
def test_an_index_is_found_by_its_own_alias_whatever_others_it_has(aliases: tuple[str, str]) -> None:
    """It is rebuilt under the one by which it was found, and readers search by its own."""
    cluster = cast(SearchClient, OneIndex("shop.plain-000001", *aliases))
    assert [index.alias for index in Indexes(cluster, settings()).all()] == ["shop.plain"]


GONE = table({"id": "int"}, regular={"v": "text"}, dropped={"w": ("int", 1)}, keyspace="shop", name="plain")


@pytest.mark.promise("opensearch.two-writers")
def test_no_letter_is_written_into_an_index_that_is_being_rebuilt() -> None:
    """What is written behind the copy of a row goes with the old index."""
    cluster, letter = OneIndex("shop.plain-000001", "shop.plain"), piece([Log(PLAIN).insert((1,), (), 1, v="a")])

    def replay() -> None:
        with pytest.raises(ServiceError, match="is to be rebuilt"):
            write_here(OpensearchSink(cast(SearchClient, cluster), settings()), [letter], AGAIN)

    cluster.while_copied = replay
    sink = OpensearchSink(cast(SearchClient, cluster), settings())
    sink.batch_write(MicroBatch("stream", 0), lambda: [(0, GONE)])
    assert cluster.record == TableEntry(PLAIN, leaving=True)


@pytest.mark.promise("opensearch.two-writers")
def test_whoever_comes_behind_a_rebuilding_that_was_cut_off_begins_it_anew() -> None:
    cluster, copied = OneIndex("shop.plain-000001", "shop.plain"), list[bool]()
    cluster.record = TableEntry(PLAIN, leaving=True)
    cluster.while_copied = lambda: copied.append(True)
    sink = OpensearchSink(cast(SearchClient, cluster), settings())
    sink.batch_write(MicroBatch("stream", 0), lambda: [(0, PLAIN)])
    assert copied


def test_an_index_is_left_to_its_stream_to_be_rebuilt() -> None:
    cluster, letter = OneIndex("shop.plain-000001", "shop.plain"), piece([Log(GONE).insert((1,), (), 5, v="a")])
    with pytest.raises(ServiceError, match="is to be rebuilt, which its stream does"):
        write_here(OpensearchSink(cast(SearchClient, cluster), settings()), [letter], AGAIN)
    assert cluster.record == TableEntry(PLAIN)


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
    """A replay of dead letters is told of a partition in one request, and of its table in a later one."""
    searched = searched_by(proxy, bulk_documents=1)
    log, time = Log(WIDE), Time(NOW)
    with closing(searched.open(time)) as sink, closing(searched.direct().open(time)) as another:
        write(another, log.delete_partition((1,), at(1)))
        time.now += HORIZON + 5
        asked, created = count(), list[bool]()

        def answer(one: Asked) -> Answer:
            created.append(b'"late"' in one.body)
            if "_mget" in one.path and b"#partition" in one.body and next(asked) == 0:
                another.sweep()
            return "pass"

        write(sink, log.insert((9,), (1,), at(9), v="y"))
        proxy.answer = answer
        assert write(sink, log.insert((1,), (1,), at(0), v="late")) == Summary(dead_letters=1)
        proxy.answer = lambda _: "pass"
    assert not any(created), "it was there for a moment"
    assert searched.rows(WIDE, "id") == [(9,)]
