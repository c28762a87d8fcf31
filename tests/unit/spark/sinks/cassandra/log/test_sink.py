"""The sink of log tables on a cluster in memory: tables made and widened, batches cut, what is refused set aside."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from uuid import UUID

import pytest

from tailrace_schemas.change import STREAMED
from tailrace_schemas.errors import ServiceError
from tailrace_spark.batch.delivery import Summary
from tailrace_spark.sinks.cassandra.cql import Mutation
from tailrace_spark.sinks.cassandra.settings import keyspace_name
from tailrace_spark.sinks.protocol import Watermark, write_here
from tests.support.letters import MemoryLetters
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.cassandra.log.cluster import LOG, NARROWED, ORDERS, ORDERS_LOG, WIDER, Cluster, piece
from tests.unit.spark.sinks.hostile import LONG_NAMES
from tests.unit.tables import table


def test_the_log_table_is_made_and_written() -> None:
    cluster = Cluster()
    sink = cluster.sink()
    first = [LOG.insert((1,), (number,), 5, v="x") for number in range(3)]
    assert write_here(sink, [piece(first, [LOG.delete((1,), (1,), 6)])]) == Summary(4, 4, 0)
    rows = cluster.rows["shop.orders_scylla_cdc_log"]
    numbers = [row["cdc$batch_seq_no"][-1] for row in rows.values()]
    assert numbers == [0, 1, 2, 0]
    assert len(cluster.statements) == 2, "the log, and the table of watermarks"
    before = dict(rows)
    again = piece(first, [LOG.delete((1,), (1,), 6)])
    assert write_here(sink, [again]) == Summary(4, 4, 0)
    assert write_here(cluster.sink(), [again, again]) == Summary(8, 8, 0)
    assert cluster.rows["shop.orders_scylla_cdc_log"] == before
    assert len(cluster.statements) == 2, "the log, and the table of watermarks"


def test_columns_are_added_in_one_statement_before_their_first_change() -> None:
    """A reader never finds a column without the one that says of its deletion."""
    cluster = Cluster()
    sink = cluster.sink()
    write_here(sink, [piece([LOG.insert((1,), (1,), 5, v="x")])])
    before = len(cluster.statements)
    sink.announce([(9, WIDER)])
    assert [statement for statement in cluster.statements[before:] if "TABLE" in statement] == [
        'ALTER TABLE shop.orders_scylla_cdc_log ADD (m frozen<map<int, frozen<addr>>>, "cdc$deleted_m" boolean, '
        '"cdc$deleted_elements_m" frozen<set<int>>)'
    ]
    columns = cluster.tables[ORDERS_LOG]
    assert [name for name in columns if not name.startswith("cdc$")] == ["id", "n", "v", "m"]
    assert list(cluster.types["shop.addr"]) == ["street", "zip", "tags"]
    write_here(sink, [piece([Log(WIDER).insert((1,), (1,), 6)]), piece([LOG.insert((1,), (2,), 7, v="x")])])
    assert len(cluster.rows[ORDERS_LOG]) == 3


def test_tables_of_a_keyspace_that_does_not_exist_hold_up_no_others() -> None:
    cluster = Cluster()
    sink = cluster.sink()
    elsewhere = table({"id": "int"}, keyspace="gone", name="orders")
    with pytest.raises(ServiceError, match=r"gone.orders_scylla_cdc_log: no such keyspace; the keyspace must exist"):
        sink.announce([(2, elsewhere), (3, ORDERS)])
    assert [*cluster.logs()] == [ORDERS_LOG]
    cluster.keyspaces = frozenset({"shop", "gone"})
    sink.announce([(2, elsewhere)])
    assert "gone.orders_scylla_cdc_log" in cluster.tables


@pytest.mark.promise("log-tables.columns")
def test_a_dropped_column_goes_from_the_log_and_older_changes_leave_it_out() -> None:
    cluster = Cluster()
    sink = cluster.sink()
    sink.announce([(1, ORDERS), (2, WIDER)])
    write_here(sink, [piece([Log(WIDER).insert((1,), (1,), 6)])])
    sink.announce([(3, NARROWED)])
    assert cluster.statements[-1] == (
        'ALTER TABLE shop.orders_scylla_cdc_log DROP (m, "cdc$deleted_m", "cdc$deleted_elements_m")'
    )
    # Another host, which is behind, and a definition of which all know by now.
    write_here(sink, [piece([Log(WIDER).insert((1,), (2,), 7, v="x")]), piece([LOG.insert((1,), (3,), 8, v="x")])])
    sink.announce([(1, ORDERS), (2, WIDER)])
    assert not {"m", "cdc$deleted_m"} & cluster.tables[ORDERS_LOG].keys()
    assert [row.get("v") for row in cluster.rows[ORDERS_LOG].values()] == [None, b"x", b"x"]
    assert len(cluster.rows[ORDERS_LOG]) == 3


def test_a_dropped_column_stays_where_it_is_to_be_kept() -> None:
    cluster = Cluster()
    sink = cluster.sink(dropped_columns="keep")
    sink.announce([(1, ORDERS), (2, WIDER), (3, NARROWED)])
    write_here(sink, [piece([Log(WIDER).insert((1,), (1,), 6, v="x")])])
    assert {"m", "cdc$deleted_m", "cdc$deleted_elements_m"} <= cluster.tables[ORDERS_LOG].keys()
    assert not any("DROP" in statement for statement in cluster.statements)


def test_a_column_that_comes_back_is_added_again() -> None:
    cluster = Cluster()
    sink = cluster.sink()
    sink.announce([(1, WIDER), (2, NARROWED)])
    assert "m" not in cluster.tables[ORDERS_LOG]
    again = replace(WIDER, dropped=NARROWED.dropped)
    sink.announce([(3, again)])
    assert "m" in cluster.tables[ORDERS_LOG]


def test_only_columns_of_our_own_log_tables_are_dropped() -> None:
    cluster = Cluster()
    cluster.sink().announce([(1, WIDER)])
    cluster.comments[ORDERS_LOG] = "made by its owner"
    cluster.tables[ORDERS_LOG]["note"] = "text"
    cluster.sink().announce([(2, NARROWED)])
    assert {"m", "note"} <= cluster.tables[ORDERS_LOG].keys()
    cluster.comments[ORDERS_LOG] = "CDC log for shop.orders"
    cluster.sink().announce([(2, NARROWED)])
    assert "m" not in cluster.tables[ORDERS_LOG]
    assert "note" in cluster.tables[ORDERS_LOG]


def test_a_key_column_that_was_renamed_is_written_under_its_newest_name() -> None:
    cluster = Cluster()
    sink = cluster.sink()
    write_here(sink, [piece([LOG.insert((1,), (1,), 5, v="x")])])
    [number] = ORDERS.clustering
    renamed = replace(ORDERS, clustering=(replace(number, name="number"),))
    sink.announce([(4, renamed)])
    assert {"n", "number"} <= cluster.tables[ORDERS_LOG].keys(), "rows have their keys under the former name"
    write_here(sink, [piece([LOG.insert((1,), (2,), 6, v="x")])])
    first, second = cluster.rows[ORDERS_LOG].values()
    assert (first.get("n"), first.get("number")) == ((1).to_bytes(4, "big"), None)
    assert (second.get("n"), second.get("number")) == (None, (2).to_bytes(4, "big"))
    sink.announce([(5, ORDERS)])
    write_here(sink, [piece([LOG.insert((1,), (3,), 7, v="x")])])
    *_, third = cluster.rows[ORDERS_LOG].values()
    assert (third.get("n"), third.get("number")) == ((3).to_bytes(4, "big"), None), "the former name came back"


def test_a_key_column_with_the_name_of_a_dropped_one_has_its_own_value() -> None:
    """Where a change is of a host that has heard of neither."""
    cluster = Cluster()
    sink = cluster.sink()
    wider = table({"id": "int"}, {"n": "int"}, regular={"v": "text", "w": "int"}, keyspace="shop", name="orders")
    again = table(
        {"id": "int"}, {"w": "int"}, regular={"v": "text"}, dropped={"w": ("int", 6)}, keyspace="shop", name="orders"
    )
    sink.announce([(1, wider), (2, again)])
    write_here(sink, [piece([Log(wider).insert((1,), (2,), 5, v="x", w=9)])])
    [row] = cluster.rows[ORDERS_LOG].values()
    assert (row.get("v"), row.get("w")) == (b"x", (2).to_bytes(4, "big"))


def test_of_many_updates_the_refused_ones_are_found_by_halves() -> None:
    """A request for each of the others would take the cluster's round trip some thousand times."""

    @dataclass
    class Counting(Cluster):
        writes: int = 0

        def apply(self, mutations: Iterable[Mutation]) -> None:
            self.writes += 1
            super().apply(mutations)

    cluster = Counting(refuses=b"refused")
    updates = [[LOG.insert((1,), (number,), number, v="refused" if number == 40 else "x")] for number in range(64)]
    sink = cluster.sink()
    sink.announce([(1, ORDERS)])
    before = cluster.writes
    assert write_here(sink, [piece(*updates)]) == Summary(
        63, 63, 1, refused={"shop.orders": "Cassandra refuses it: too large"}
    )
    assert len(cluster.rows[ORDERS_LOG]) == 63
    assert cluster.writes - before <= 1 + (1 + 2 * 6) + 1, "all, then halves of what has it, then the letter"


@pytest.mark.promise("log-tables.own-name")
def test_two_tables_never_share_a_log() -> None:
    cluster = Cluster(keyspaces=frozenset({"all"}))
    other = Log(replace(ORDERS, keyspace="store", id=UUID(int=8)))
    letters = MemoryLetters()
    sink = cluster.sink(keyspace="all", letters=letters)
    found = write_here(sink, [piece([LOG.insert((1,), (1,), 5, v="x")], [other.insert((1,), (2,), 6, v="x")])])
    assert found == Summary(1, 1, 1)
    [letter] = letters.all
    assert "all.orders_scylla_cdc_log is the log of shop.orders, so not of store.orders" in letter.reason


def test_a_table_made_again_without_a_column_sets_aside_what_its_log_has_no_place_for() -> None:
    cluster, letters = Cluster(), MemoryLetters()
    sink = cluster.sink(letters=letters)
    anew = replace(ORDERS, id=UUID(int=9), regular=())
    sink.announce([(1, ORDERS), (2, anew)])
    assert write_here(sink, [piece([LOG.insert((1,), (1,), 5, v="x")], [Log(anew).insert((1,), (2,), 6)])]) == Summary(
        1, 1, 1
    )
    [letter] = letters.all
    assert "was dropped and made again, and its log has no column v any more" in letter.reason


def test_another_keyspace_and_a_user_type_that_has_grown() -> None:
    cluster = Cluster(keyspaces=frozenset({"shop_log"}), types={"shop_log.addr": {"street": "text"}})
    typed = Log(table({"id": "int"}, regular={"u": "addr"}, keyspace="shop", name="people"))
    write_here(cluster.sink(keyspace="{keyspace}_log"), [piece([typed.insert((1,), (), 5)])])
    assert list(cluster.types["shop_log.addr"]) == ["street", "zip", "tags"]
    assert [*cluster.logs()] == ["shop_log.people_scylla_cdc_log"]
    for other in ({"road": "text"}, {"street": "int"}):
        older = Cluster(keyspaces=frozenset({"shop_log"}), types={"shop_log.addr": dict(other)})
        sink = older.sink(keyspace="{keyspace}_log")
        assert write_here(sink, [piece([typed.insert((1,), (), 5)])]) == Summary(dead_letters=1)
        assert older.types == {"shop_log.addr": other}, "values have their fields by place, as bytes"


@pytest.mark.promise("sinks.one-table-alone")
def test_the_longest_names_have_a_keyspace_and_logs_that_cassandra_takes() -> None:
    """A keyspace that nobody can make would hold up all tables for ever."""
    keyspace = keyspace_name("{keyspace}_log", LONG_NAMES[0].keyspace)
    assert len(keyspace) == 48
    cluster = Cluster(keyspaces=frozenset({keyspace}))
    sink = cluster.sink(keyspace="{keyspace}_log")
    assert write_here(sink, [piece([Log(of).insert((1,), (), 5)]) for of in LONG_NAMES]) == Summary(2, 2, 0)
    assert len(cluster.logs()) == 2
    assert max(len(name) for log in cluster.logs() for name in log.split(".")) == 48


def test_a_cluster_without_the_keyspace_is_waited_for() -> None:
    cluster = Cluster(keyspaces=frozenset())
    sink = cluster.sink()
    batch = [piece([LOG.insert((1,), (1,), 5, v="x")])]
    with pytest.raises(ServiceError, match="orders_scylla_cdc_log: no such keyspace; the keyspace must exist"):
        write_here(sink, batch)
    cluster.keyspaces = frozenset({"shop"})
    assert write_here(sink, batch).rows == 1
    cluster.down = True
    with pytest.raises(ServiceError, match="down"):
        write_here(sink, batch)
    with pytest.raises(ServiceError, match="down"):
        sink.reach()


@pytest.mark.promise("log-tables.set-aside")
def test_a_table_made_anew_with_another_type_goes_to_the_dead_letters() -> None:
    cluster, letters = Cluster(), MemoryLetters()
    sink = cluster.sink(letters=letters)
    write_here(sink, [piece([LOG.insert((1,), (1,), 5, v="x")])])
    anew = Log(table({"id": "int"}, {"n": "int"}, regular={"v": "bigint"}, keyspace="shop", name="orders"))
    other = Log(table({"id": "int"}, keyspace="shop", name="others"))
    found = write_here(sink, [piece([anew.insert((1,), (1,), 6, v=7)], [other.insert((1,), (), 6)])])
    assert found == Summary(1, 1, 1)
    [letter] = letters.all
    assert "column v is text there, and bigint is to be written" in letter.reason
    assert letter.record_id.schema_id == b"schema-1"


def test_a_log_table_that_somebody_dropped_is_made_anew() -> None:
    cluster = Cluster()
    sink = cluster.sink()
    write_here(sink, [piece([LOG.insert((1,), (1,), 5, v="x")])])
    del cluster.tables["shop.orders_scylla_cdc_log"], cluster.rows["shop.orders_scylla_cdc_log"]
    assert write_here(sink, [piece([LOG.insert((1,), (2,), 6, v="x")], [LOG.delete((1,), (2,), 7)])]) == Summary(
        2, 2, 0
    )
    assert len(cluster.rows["shop.orders_scylla_cdc_log"]) == 2


@pytest.mark.promise("log-tables.streamed-data")
@pytest.mark.parametrize(("streamed", "rows"), [("write", 2), ("skip", 1)])
def test_data_that_was_streamed_is_left_out_where_that_is_asked_for(streamed: str, rows: int) -> None:
    cluster = Cluster()
    again = LOG.insert((1,), (1,), 5, v="x")
    assert again.source is not None
    again = replace(again, source=replace(again.source, flags=STREAMED))
    sink = cluster.sink(streamed=streamed)
    assert write_here(sink, [piece([again], [LOG.insert((1,), (2,), 6, v="x")])]).rows == rows
    assert len(cluster.rows[ORDERS_LOG]) == rows


@pytest.mark.promise("log-tables.watermark")
def test_readers_are_told_how_far_a_log_is_complete() -> None:
    cluster = Cluster()
    sink = cluster.sink(lateness_seconds=5)
    assert sink.capabilities.watermarks is sink
    assert sink.lateness_ms == 5_000
    sink.announce([(1, ORDERS)])
    for time, words in ((None, "host a"), (700, "host a"), (700, "the stream"), (600, "host b"), (900, "host a")):
        sink.complete([Watermark(ORDERS, time, words)])
    assert cluster.watermarks() == {"orders_scylla_cdc_log": (900, "host a")}
    before = len(cluster.mutations)
    sink.complete([Watermark(ORDERS, 900, "host a")])
    assert len(cluster.mutations) == before, "nothing has changed"
    # Another run of the stream, which knows less at first: readers have gone on by what was said.
    cluster.sink().complete([Watermark(ORDERS, None, "host a"), Watermark(ORDERS, 800, "host b")])
    assert cluster.watermarks() == {"orders_scylla_cdc_log": (900, "host b")}


@pytest.mark.promise("log-tables.watermark")
def test_a_log_that_is_made_again_is_complete_up_to_nowhere() -> None:
    cluster = Cluster()
    sink = cluster.sink()
    sink.announce([(1, ORDERS)])
    sink.complete([Watermark(ORDERS, 900, "host a")])
    del cluster.tables[ORDERS_LOG], cluster.comments[ORDERS_LOG]
    again = cluster.sink()
    again.announce([(1, ORDERS)])
    assert cluster.watermarks() == {}
    again.complete([Watermark(ORDERS, 300, "host a")])
    assert cluster.watermarks() == {"orders_scylla_cdc_log": (300, "host a")}


def test_tables_without_a_log_have_no_watermark() -> None:
    cluster = Cluster()
    gone, counters = (table({"id": "int"}, keyspace=keyspace, name="x") for keyspace in ("gone", "shop"))
    counters = replace(counters, flags=frozenset({"counter"}))
    cluster.sink().complete([Watermark(gone, 1), Watermark(counters, 1), Watermark(ORDERS, 7)])
    assert cluster.watermarks() == {"orders_scylla_cdc_log": (7, "")}


def test_batches_are_of_one_stream_and_small() -> None:
    cluster = Cluster()
    many = [LOG.insert((1,), (number,), 5, v="x" * 3_000) for number in range(100)]
    write_here(cluster.sink(), [piece(many)])
    statements = [mutation.statements for mutation in cluster.mutations]
    batches = [[row for _, row in parts] for parts in statements if parts[0][0].startswith("INSERT")]
    assert sum(len(rows) for rows in batches) == 100
    assert max(len(rows) for rows in batches) <= 32
    assert all(mutation.size <= 65_536 for mutation in cluster.mutations)
    assert all(len({row[0] for row in rows}) == 1 for rows in batches)
    assert {(row[-2], row[-1]) for rows in batches for row in rows} == {
        ((5).to_bytes(8, "big"), (86_400).to_bytes(4, "big"))
    }
