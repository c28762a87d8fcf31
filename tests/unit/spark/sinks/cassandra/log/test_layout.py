"""Which columns a log table has, and the CQL that makes it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailrace_schemas.errors import UnsupportedError
from tailrace_spark.sinks.cassandra.log.layout import (
    add_statement,
    create_statement,
    drop_statement,
    dropped_columns,
    insert_statement,
    log_table,
)
from tests.unit.tables import table

EVERYTHING = table(
    {"pk": "int", "Pk2": "text"},
    {"ck": "timeuuid desc"},
    {"s": "int"},
    {
        "v": "text", "l": "list<int>", "c": "set<frozen<list<text>>>", "m": "map<int, frozen<addr>>", "u": "addr",
        "f": "frozen<map<int, text>>", "t": "tuple<int, text>",
    },
)  # fmt: skip


@pytest.mark.promise("log-tables.guide")
def test_columns_are_those_of_scylladbs_log_tables() -> None:
    columns = {name: str(cql_type) for name, cql_type in log_table(EVERYTHING, "ks").columns.items()}
    assert columns == {
        "cdc$stream_id": "blob",
        "cdc$time": "timeuuid",
        "cdc$batch_seq_no": "int",
        "cdc$operation": "tinyint",
        "cdc$ttl": "bigint",
        "cdc$end_of_batch": "boolean",
        "pk": "int",
        "Pk2": "text",
        "ck": "timeuuid",
        "s": "int",
        "cdc$deleted_s": "boolean",
        "v": "text",
        "cdc$deleted_v": "boolean",
        "l": "frozen<map<timeuuid, int>>",
        "cdc$deleted_l": "boolean",
        "cdc$deleted_elements_l": "frozen<set<timeuuid>>",
        "c": "frozen<set<frozen<list<text>>>>",
        "cdc$deleted_c": "boolean",
        "cdc$deleted_elements_c": "frozen<set<frozen<list<text>>>>",
        "m": "frozen<map<int, frozen<addr>>>",
        "cdc$deleted_m": "boolean",
        "cdc$deleted_elements_m": "frozen<set<int>>",
        "u": "frozen<addr>",
        "cdc$deleted_u": "boolean",
        "cdc$deleted_elements_u": "frozen<set<smallint>>",
        "f": "frozen<map<int, text>>",
        "cdc$deleted_f": "boolean",
        "t": "frozen<tuple<int, text>>",
        "cdc$deleted_t": "boolean",
    }


def test_the_table_expires_window_by_window() -> None:
    log = log_table(table({"pk": "int"}, regular={"V": "int"}, name="Quo'te"), "ks")
    assert create_statement(log, 86_400) == (
        'CREATE TABLE IF NOT EXISTS ks."Quo\'te_scylla_cdc_log" ("cdc$stream_id" blob, "cdc$time" timeuuid, '
        '"cdc$batch_seq_no" int, "cdc$operation" tinyint, "cdc$ttl" bigint, "cdc$end_of_batch" boolean, pk int, '
        '"V" int, "cdc$deleted_V" boolean, PRIMARY KEY ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no")) '
        "WITH comment = 'CDC log for ks.Quo''te' AND gc_grace_seconds = 0 AND compaction = "
        "{'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'MINUTES', "
        "'compaction_window_size': '60', 'expired_sstable_check_frequency_seconds': '1800'}"
    )
    assert "gc_grace" not in create_statement(log, 0)
    assert "'compaction_window_size': '1'" in create_statement(log, 1)


def test_rows_are_written_with_their_own_time() -> None:
    log = log_table(table({"pk": "int"}, regular={"V": "int"}), "other")
    assert insert_statement(log, log.columns) == (
        'INSERT INTO other.t_scylla_cdc_log ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no", "cdc$operation", '
        '"cdc$ttl", "cdc$end_of_batch", pk, "V", "cdc$deleted_V") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) '
        "USING TIMESTAMP ? AND TTL ?"
    )
    assert add_statement(log, ["V", "cdc$deleted_V"]) == (
        'ALTER TABLE other.t_scylla_cdc_log ADD ("V" int, "cdc$deleted_V" boolean)'
    )
    assert drop_statement(log, ["V", "cdc$deleted_V"]) == (
        'ALTER TABLE other.t_scylla_cdc_log DROP ("V", "cdc$deleted_V")'
    )


def test_columns_of_dropped_ones_are_told_from_all_others() -> None:
    log = log_table(table({"pk": "int"}, regular={"v": "int", "elements_w": "int", "m": "frozen<map<int, int>>"}), "ks")
    existing = {name: str(cql_type) for name, cql_type in log.columns.items()}
    assert dropped_columns(log, existing) == []
    existing |= {
        "former_key": "int",
        "cdc$deleted_elements_m": "frozen<set<int>>",
        "w": "int",
        "cdc$deleted_w": "boolean",
    }
    assert dropped_columns(log, existing) == ["cdc$deleted_elements_m", "w", "cdc$deleted_w"]


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        (replace(table({"pk": "int"}, regular={"n": "counter"}), flags=frozenset({"counter"})), "counter tables have"),
        (replace(table({"pk": "int"}), flags=frozenset({"compound", "view"})), "materialized views have"),
        (table({"pk": "int"}, regular={"cdc$time": "int"}), "column cdc\\$time is called"),
        (table({"pk": "int"}, regular={"w": "set<int>", "elements_w": "int"}), "called cdc\\$deleted_elements_w"),
    ],
)
def test_what_has_no_log_table(of: object, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        log_table(of, "ks")  # type: ignore[arg-type]  # a Table from the list above
