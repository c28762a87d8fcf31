"""The record of a table: its JSON form, and what becomes of it."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from itertools import permutations
from typing import Any, Final
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.errors import DecodeError, SettingsError
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table
from tailrace_spark.merge.table_record import (
    TableRecord,
    decode_record,
    define,
    encode_record,
    merge_definitions,
    purge,
    truncate,
)
from tailrace_spark.rowstate.truncation import EVERYTHING, HostTruncation, TruncationState
from tests.unit.spark.cassandra import Log
from tests.unit.spark.cassandra import truncate as truncated_at
from tests.unit.spark.sinks.contract import delivered
from tests.unit.tables import table

ID: Final = UUID("2be43760-e57f-11f1-8599-73518cff440e")
PLAIN: Final = replace(table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name="plain"), id=ID)

micros = st.integers(-(2**62), 2**62)
hosts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
definitions = st.builds(
    lambda clustering, regular, dropped: replace(
        table(
            {"id": "int"},
            dict.fromkeys(clustering, "int desc"),
            regular=dict.fromkeys(regular, "map<text, frozen<list<int>>>"),
            dropped=dict.fromkeys(dropped, ("int", 20)),
        ),
        id=ID,
    ),
    st.sets(st.sampled_from(["c", "D", "e e"])),
    st.sets(st.sampled_from(["v", "V", "ü", 'w"w'])),
    st.sets(st.sampled_from(["x", "y"])),
)
host_truncations = st.builds(HostTruncation, hosts, micros, st.none(), micros)
truncations = st.builds(
    lambda by_host, statements: TruncationState(tuple([by_host[host] for host in sorted(by_host)]), statements),
    st.lists(host_truncations, max_size=4).map(lambda all_hosts: {one.host: one for one in all_hosts}),
    st.lists(micros, max_size=2, unique=True).map(lambda times: tuple(sorted(times))),
)
records = st.builds(TableRecord, definitions, st.integers(-1, 2**60), truncations, st.none() | micros)
owns = st.dictionaries(st.sampled_from(["buckets", "names", "pending"]), st.integers() | st.booleans())
KEY = {"id": "int"}
FIRST = table(KEY, regular={"v": "int"})
ADDED = table(KEY, regular={"v": "int", "w": "text"})
DROPPED = table(KEY, regular={"w": "text"}, dropped={"v": ("int", 20)})
AGAIN = table(KEY, regular={"v": "text", "w": "text"}, dropped={"v": ("int", 20)})
TWICE = table(KEY, regular={"w": "text"}, dropped={"v": ("text", 30)})


@given(records, owns)
def test_a_record_comes_back(record: TableRecord, own: dict[str, Any]) -> None:
    encoded = encode_record(record, own)
    assert decode_record(encoded) == decode_record(encoded.encode()) == (record, own)
    assert encode_record(*decode_record(encoded)) == encoded


@pytest.mark.promise("catalog.later-versions")
@pytest.mark.parametrize("number", [None, 0, 2])
def test_another_versions_record_is_refused(number: int | None) -> None:
    other = json.loads(encode_record(TableRecord(PLAIN))) | {"record": number}
    with pytest.raises(SettingsError, match=rf"another version.*format {number}.*Install that version, or give"):
        decode_record(json.dumps(other))


WRITTEN: Final = encode_record(TableRecord(PLAIN, 3, purged_to=5)).encode()


@given(st.binary(max_size=40) | st.integers(0, len(WRITTEN) - 1).map(lambda end: WRITTEN[:end]))
def test_what_is_no_record_is_told(encoded: bytes) -> None:
    with pytest.raises((DecodeError, SettingsError)):
        decode_record(encoded)


@pytest.mark.slow
@given(records, st.sampled_from(["definition", "announced", "truncations", "purged_to", "own"]), st.data())
def test_a_damaged_member_is_told_or_harmless(record: TableRecord, name: str, data: st.DataObject) -> None:
    damage = data.draw(st.none() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=2))
    members = json.loads(encode_record(record, {"buckets": 1})) | {name: damage}
    with suppress(DecodeError):
        decode_record(json.dumps(members))


@pytest.mark.slow
@given(st.lists(st.tuples(definitions, st.integers(-1, 9)), min_size=1, max_size=6))
def test_a_table_has_all_columns_and_the_newest_announcement(announced: list[tuple[Table, int]]) -> None:
    (first, at_first), *further = announced
    record = TableRecord(first, at_first)
    for definition, at in further:
        record = define(record, definition, at)
    assert record.announced == max(at for _, at in announced)
    dropped = {drop.column.name for definition, _ in announced for drop in definition.dropped}
    columns = {column.name for definition, _ in announced for column in definition.columns}
    assert {column.name for column in record.definition.columns} == columns - dropped
    newest = max(enumerate(announced), key=lambda item: (item[1][1], item[0]))[1][0]
    assert record.definition.clustering == newest.clustering


@pytest.mark.slow
@given(records, st.lists(st.lists(micros, max_size=3), max_size=4))
def test_a_purge_never_forgets_an_earlier_one(record: TableRecord, purges: list[list[int]]) -> None:
    purged = record
    for written in purges:
        purged = purge(purged, written)
    times = [*(time for written in purges for time in written), record.purged_to]
    assert purged.purged_to == max((time for time in times if time is not None), default=None)
    assert replace(purged, purged_to=record.purged_to) == record


def test_a_truncation_of_everything_lets_purged_deletions_go() -> None:
    record = TableRecord(PLAIN, 3, purged_to=5)
    log = Log(PLAIN)
    before, truncation = log.insert((1,), (), 1, v="a"), truncated_at(PLAIN, "h1", 7, Position(0, 1, 9))
    truncated, taken = truncate(record, [delivered(before), delivered(truncation)], 1.0)
    assert taken.erased == EVERYTHING
    assert (truncated.purged_to, truncated.truncations) == (None, taken.truncations)
    again, nothing = truncate(replace(truncated, purged_to=6), [delivered(truncation)], 1.0)
    assert (again.purged_to, nothing.erased) == (6, None)


@pytest.mark.parametrize(
    ("history", "latest"),
    [
        ([FIRST, ADDED], ADDED),
        ([FIRST, ADDED, DROPPED], DROPPED),
        ([FIRST, ADDED, DROPPED, AGAIN], AGAIN),
        ([FIRST, DROPPED, AGAIN, TWICE], TWICE),
    ],
)
def test_the_latest_definition_comes_out_of_every_order(history: list[Table], latest: Table) -> None:
    for order in permutations(history):
        merged = order[0]
        for definition in order[1:]:
            merged = merge_definitions(merged, definition)
        assert merged == latest


def test_renamed_keys_and_fields_have_the_newer_ones_names() -> None:
    before = table({"k": "int"}, {"c": "int desc"}, regular={"v": "tuple<int>"})
    after = table({"kk": "int"}, {"C": "int desc"}, regular={"c": "int", "v": "tuple<text>"})
    assert merge_definitions(before, after) == after
    assert merge_definitions(after, before, second_newer=False) == after
    wider = table({"k": "int"}, {"c": "int desc"}, regular={"v": "tuple<int, int>"})
    assert merge_definitions(wider, before) == merge_definitions(before, wider) == wider


def test_two_tables_are_not_merged() -> None:
    with pytest.raises(ValueError, match="two table ids"):
        merge_definitions(FIRST, replace(FIRST, id=UUID(int=1)))
