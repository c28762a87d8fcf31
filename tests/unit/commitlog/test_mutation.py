"""Mutations: the bytes that Cassandra wrote, invented ones against an independent writer, and damaged ones."""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.commitlog.model import Mutation, PartitionUpdate, RangeMarker, Row
from tailrace.commitlog.mutation import decode_mutation, first_table, oldest_write
from tailrace.errors import UnknownColumnError, UnknownTableError
from tailrace_schemas.change import Cell, ColumnDeletion, Deletion, Marker
from tailrace_schemas.errors import CorruptError, DecodeError, TruncatedError, UnsupportedError
from tailrace_schemas.table import Column, Table
from tests.properties import examples
from tests.unit.commitlog.invented import Inventor
from tests.unit.commitlog.written import Stats, encode, sized, vint
from tests.unit.mutations import deletion
from tests.unit.tables import TABLE_ID, table

# The table of the recorded bytes, with columns beyond those that they name.
SIMPLE = table(
    {"pk": "int"},
    {"ck": "text"},
    {"s1": "text", "s2": "set<int>"},
    {"m": "map<text, int>", "s": "set<int>", "v": "text", "w": "bigint"},
    dropped={"gone": ("int", 1_700_000_000_000_000)},
)
S1, S2 = SIMPLE.static
M, S, V, W = SIMPLE.regular
GONE = SIMPLE.dropped[0].column
KEY = bytes.fromhex("00000001")
HEAD = bytes.fromhex("01") + TABLE_ID.bytes + sized(KEY)
T1 = 1_700_000_000_000_001
# What the recorded delta f01500b182 stands for.
DELETED = 1_442_880_000 + 0x1500B182
NOTHING: dict[UUID, Table] = {}
FIRST, NEXT = Deletion(T1, DELETED), Deletion(T1 + 1, DELETED)
# Stats that count from T1, DELETED and 0.
AT = "fce9d96a43c001 f01500b182 00"
TABLE = table({"id": "text"})


def decode(text: str, version: int = 7) -> PartitionUpdate:
    (update,) = decode_mutation(HEAD + bytes.fromhex(text), version, {TABLE_ID: SIMPLE}.get).updates
    return update


def update(*items: Row | RangeMarker, deletion: Deletion | None = None, static: Row | None = None) -> PartitionUpdate:
    return PartitionUpdate(table=SIMPLE, key=KEY, deletion=deletion, static=static, items=items)


def cell(column: Column, value: bytes | None, at: int = T1, *, path: bytes | None = None) -> Cell:
    return Cell(column, path, at, None, DELETED if value is None else None, value)


def row(*cells: Cell, marker: Marker | None = None, deletion: Deletion | None = None) -> Row:
    return Row(clustering=(b"a",), marker=marker, deletion=deletion, cells=cells)


CASES = [
    # bytes behind the key, what they are, why
    (
        "10 fce9d96a43c001 00 00 02 0176 0177 01 24 00 0161 00 08 05 68656c6c6f 08 000000000000002a 01",
        update(row(cell(V, b"hello"), cell(W, bytes(7) + b"*"), marker=Marker(T1))),
        "insert: text with its length, bigint without",
    ),
    (
        "14 fce9d96a43c008 f01500b182 00 00 00 00 00 01",
        update(deletion=Deletion(T1 + 7, DELETED)),
        "partition deletion: no columns, estimate 0",
    ),
    ("01", update(), "empty update: nothing follows, not even an end"),
    (
        f"10 {AT} 00 00 02 07 0001 00 0164 00 00 02 06 0001 00 016d 00 00 01",
        update(RangeMarker(kind=7, values=(b"d",), open=FIRST), RangeMarker(kind=6, values=(b"m",), close=FIRST)),
        "range ck > 'd' AND ck <= 'm'",
    ),
    (
        f"10 {AT} 00 00 02 07 0001 00 0163 00 00 02 02 0001 00 0166 00 00 01 00 02 06 0000 01 00 01",
        update(
            RangeMarker(kind=7, values=(b"c",), open=FIRST),
            RangeMarker(kind=2, values=(b"f",), close=FIRST, open=NEXT),
            RangeMarker(kind=6, values=(), close=NEXT),
        ),
        "adjacent ranges: the boundary has the closing deletion first",
    ),
    (f"10 {AT} 00 00 30 00 0161 00 00 01", update(row(deletion=FIRST)), "row deletion"),
    (
        f"18 {AT} 02 02 7331 02 7332 00 e0 01 00 01 04 6f6e6c79 00 00 01 04 01 04 00000009 00 01",
        update(
            static=Row(
                clustering=(),
                static=True,
                cells=(cell(S1, b"only", T1 + 1), cell(S2, b"", T1 + 1, path=bytes(3) + b"\x09")),
                column_deletions=(ColumnDeletion(S2, FIRST),),
            )
        ),
        "static row with a set that is overwritten: elements are live cells without value",
    ),
    (
        f"10 {AT} 02 0176 0177 00 00 00 0161 02 05 00 00 01",
        update(row(cell(V, None))),
        "subset: bit 1 set means w is missing; a tombstone has a time, a deletion time and no value",
    ),
    (
        f"10 {AT} 02 0176 0177 00 04 01 02 03 01",
        update(Row(clustering=(b"",), marker=Marker(T1 + 2))),
        "empty clustering value (even bit); a row without cells misses both columns",
    ),
    (
        f"10 {AT} 01 0176 00 24 02 00 0c 01",
        update(Row(clustering=(None,), marker=Marker(T1), cells=(cell(V, b""),))),
        "null clustering value (odd bit); an empty text is alive",
    ),
    (
        "10 fce9d96a43c001 f01500b182 64 01 0176 00 2c 00 0161 00 02 0a 1a 0174 01",
        update(
            row(
                Cell(V, None, T1, 102, DELETED + 10, b"t"),
                marker=Marker(T1, 102, DELETED + 10),
            )
        ),
        "expiring row: ttl, then expiry; the cell takes both from the row",
    ),
    (
        "10 fce9d96a43c001 f01500b182 64 01 0176 00 2c 00 0161 00 02 0a 0a 0b 03 0174 01",
        update(
            row(
                Cell(V, None, T1, 103, DELETED + 11, b"t"),
                marker=Marker(T1, 102, DELETED + 10),
            )
        ),
        "a cell's own: expiry, then ttl",
    ),
    (
        f"10 {AT} 02 0176 016d 00 20 00 0161 04 01 02 00 02 0178 04 00000009 05 03 01 0179 01",
        update(
            row(
                cell(V, b"", T1 + 1),
                cell(M, bytes(3) + b"\x09", T1 + 2, path=b"x"),
                Cell(M, b"y", T1 + 3, None, DELETED + 1, None),
            )
        ),
        "map: element values have lengths although int is fixed; an element that is removed",
    ),
    (
        "10 fce9d96a43c0cc f01500b183 00 01 016d 00 60 00 0161 ff7ff9f5dbe7e1bf34 f014feb47c 01 00 00 0178 0109 01",
        update(row(cell(M, b"\x09", T1 + 203, path=b"x"))),
        "LIVE placeholder of a collection, from 4.0",
    ),
    (
        "10 fce9d96a43c0cb f01500b18a 00 01 016d 00 60 00 0161"
        " ff7ff9f5dbe7e1bf35 ffffffffff94feb475 01 00 00 0178 0109 01",
        update(row(cell(M, b"\x09", T1 + 202, path=b"x"))),
        "LIVE placeholder of a collection, from 5.0: another deletion time",
    ),
    (
        f"10 {AT} 03 0176 016d 0173 00 20 00 0161 04 00 00 00 01",
        update(row(cell(V, b""))),
        "collections without deletion and cells are left out",
    ),
    (f"10 {AT} 01 016d 00 20 00 0161 00 01", update(), "and a row in which nothing is left"),
    (
        f"10 {AT} 01 04 676f6e65 00 20 00 0161 00 00 0000002a 01",
        update(row(cell(GONE, bytes(3) + b"*"))),
        "a dropped column is decoded by the type that it had",
    ),
    (
        f"10 {vint(-12345 - 1_442_880_000_000_000).hex()} 00 00 00 00 24 00 0161 00 01",
        update(row(marker=Marker(-12345))),
        "a negative timestamp stands as a vint of nine bytes",
    ),
]


@pytest.mark.parametrize(("text", "expected", "why"), CASES)
def test_bytes_by_the_book(text: str, expected: PartitionUpdate, why: str) -> None:
    assert decode(text) == expected, why


@pytest.mark.parametrize("text", [text for text, _, _ in CASES])
def test_a_mutation_cut_anywhere_is_truncated(text: str) -> None:
    payload = HEAD + bytes.fromhex(text)
    for size in range(len(payload)):
        with pytest.raises(TruncatedError):
            decode_mutation(payload[:size], 7, {TABLE_ID: SIMPLE}.get)


@pytest.mark.parametrize("text", [text for text, _, _ in CASES])
def test_bytes_behind_the_last_update_are_corrupt(text: str) -> None:
    with pytest.raises(CorruptError, match="1 bytes left"):
        decode(text + "00")


def test_local_deletion_times_by_version() -> None:
    # 2^31 seconds: in 2038 for version 8, an overflow before.
    payload = f"14 fce9d96a43c001 {vint(2**31 - 1_442_880_000).hex()} 00 00 00 00 00 01"
    assert decode(payload, 7).deletion == Deletion(T1, -(2**31))
    assert decode(payload, 8).deletion == Deletion(T1, 2**31)


CORRUPT = [
    ("12 00 00 00 00 00 01", "partition flags 0x12"),
    ("30 00 00 00 00 00 01", "partition flags 0x30"),
    (f"18 {AT} 00 00 20 01", "static row: flags 0x20, 0x00"),
    (f"10 {AT} 00 00 a0 01 00 0161 01", "row: flags 0xa0, 0x01"),
    (f"10 {AT} 00 00 a0 04 00 0161 01", "row: flags 0xa0, 0x04"),
    (f"10 {AT} 00 00 03", "row: flags 0x03"),
    (f"10 {AT} 00 00 06", "row: flags 0x06"),
    (f"10 {AT} 00 00 02 03 0000 00 00 01", "kind 3"),
    (f"10 {AT} 00 00 02 08 0000 00 00 01", "kind 8"),
    (f"10 {AT} 00 00 02 07 0002 00 00 01", "2 values for 1 clustering columns"),
    (f"10 {AT} 01 0176 00 20 00 0161 20 00 01", "cell of v: flags 0x20"),
    (f"10 {AT} 01 0176 00 20 00 0161 07 00 00 00 01", "both deleted and expiring"),
    (f"10 {AT} 01 0176 00 20 00 0161 0c 01", "takes its time from a row marker that is not there"),
    (f"10 {AT} 01 0176 00 20 00 0161 16 00 01", "takes a ttl from a row marker that has none"),
    (f"10 {AT} 01 0176 00 24 00 0161 00 1e 01", "takes a ttl from a row marker that has none"),
    (f"10 {AT} 01 0176 00 00 00 0161 02 01", "column subset 0x2 of only 1 columns"),
    (f"10 {AT} 03 0176 0177 0176 00 01", "a header of 3 columns names one of them twice"),
]


@pytest.mark.parametrize(("text", "reason"), CORRUPT)
def test_rules_that_are_broken(text: str, reason: str) -> None:
    with pytest.raises(CorruptError, match=reason) as caught:
        decode(text)
    assert "ks.t" in str(caught.value)


HUGE = "ffffffffffffffffff"


@pytest.mark.parametrize(
    "text",
    [
        f"10 {AT} {HUGE} 00 00 01",
        f"10 {AT} 01 {HUGE} 76 00 01",
        f"10 {AT} 02 {HUGE} 76 0176 00 01",
        f"10 {AT} 00 00 24 00 {HUGE} 00 01",
        f"10 {AT} 01 0176 00 20 00 0161 00 00 {HUGE} 01",
        f"10 {AT} 01 016d 00 20 00 0161 {HUGE} 00 00 0178 0109 01",
        f"10 {AT} 01 016d 00 20 00 0161 01 00 00 {HUGE} 78 0109 01",
        f"10 {AT} 01 016d 00 20 00 0161 01 00 00 0178 {HUGE} 09 01",
        f"10 {AT} 00 00 02 07 0001 00 {HUGE} 00 00 01",
    ],
)
def test_lengths_and_counts_beyond_anything(text: str) -> None:
    with pytest.raises(TruncatedError):
        decode(text)


def test_a_key_beyond_anything() -> None:
    with pytest.raises(TruncatedError):
        decode_mutation(b"\x01" + TABLE_ID.bytes + bytes.fromhex(HUGE) + b"\x01", 7, {TABLE_ID: SIMPLE}.get)
    with pytest.raises(TruncatedError):
        decode_mutation(bytes.fromhex(HUGE) + (HEAD + b"\x01")[1:], 7, {TABLE_ID: SIMPLE}.get)


def test_no_update_at_all() -> None:
    with pytest.raises(CorruptError, match="no partition update"):
        decode_mutation(b"\x00", 7, {TABLE_ID: SIMPLE}.get)


def test_an_unknown_table_is_named() -> None:
    with pytest.raises(UnknownTableError) as caught:
        decode_mutation(HEAD + b"\x01", 7, NOTHING.get)
    assert caught.value.table_id == TABLE_ID


def test_an_unknown_table_behind_a_known_one() -> None:
    other = UUID(int=9)
    payload = b"\x02" + (HEAD + b"\x01")[1:] + other.bytes + b"\x00\x01"
    with pytest.raises(UnknownTableError) as caught:
        decode_mutation(payload, 7, {TABLE_ID: SIMPLE}.get)
    assert caught.value.table_id == other


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(UnknownColumnError, match=r"b'zz' of ks\.t") as caught:
        decode(f"10 {AT} 01 027a7a 00 01")
    assert (caught.value.table_id, caught.value.name) == (TABLE_ID, b"zz")


def test_a_new_definition_of_a_table_is_used_at_once() -> None:
    text = f"10 {AT} 01 027a7a 00 20 00 0161 00 00 0105 01"
    with pytest.raises(UnknownColumnError):
        decode(text)
    added = table({"pk": "int"}, {"ck": "text"}, regular={"zz": "tinyint"})
    (found,) = decode_mutation(HEAD + bytes.fromhex(text), 7, {TABLE_ID: added}.get).updates
    assert found.items == (Row(clustering=(b"a",), cells=(Cell(added.regular[0], None, T1, None, None, b"\x05"),)),)


@pytest.mark.parametrize("version", [5, 10])
def test_other_versions_are_refused(version: int) -> None:
    with pytest.raises(UnsupportedError, match=str(version)):
        decode_mutation(HEAD + b"\x01", version, {TABLE_ID: SIMPLE}.get)
    with pytest.raises(UnsupportedError, match=str(version)):
        first_table(HEAD, version)


def test_version_9_has_flags_and_an_epoch_for_each_update() -> None:
    for flags in (b"\0", b"\x01"):
        payload = flags + b"\x01" + TABLE_ID.bytes + b"\x81\x2c" + sized(KEY) + b"\x01"
        (found,) = decode_mutation(payload, 9, {TABLE_ID: SIMPLE}.get).updates
        assert found == PartitionUpdate(table=SIMPLE, key=KEY, metadata_epoch=300)
        assert first_table(payload, 9) == (1, TABLE_ID)
        for size in range(len(payload)):
            with pytest.raises(TruncatedError):
                decode_mutation(payload[:size], 9, {TABLE_ID: SIMPLE}.get)
    assert decode("01", 8).metadata_epoch is None


@pytest.mark.parametrize("flags", [2, 3, 0x80, 0xFF])
def test_flags_that_are_not_known_are_refused(flags: int) -> None:
    payload = bytes((flags,)) + b"\x01" + TABLE_ID.bytes + b"\x01" + sized(KEY) + b"\x01"
    for read in (lambda: decode_mutation(payload, 9, {TABLE_ID: SIMPLE}.get), lambda: first_table(payload, 9)):
        with pytest.raises(UnsupportedError, match=f"mutation flags {flags:#04x} are newer"):
            read()


def test_what_the_caller_raises_passes() -> None:
    def failing(_: UUID) -> None:
        raise IndexError("of the caller")

    with pytest.raises(IndexError, match="of the caller"):
        decode_mutation(HEAD + b"\x01", 7, failing)


def test_the_first_table_needs_no_decoding() -> None:
    assert first_table(HEAD, 7) == (1, TABLE_ID)
    assert first_table(vint(300) + TABLE_ID.bytes + b"anything", 8) == (300, TABLE_ID)
    for size in range(17):
        with pytest.raises(TruncatedError):
            first_table(HEAD[:size], 7)


SEEDS = st.integers(0, 2**32)


@pytest.mark.slow
@given(SEEDS, st.sampled_from((6, 7, 8, 9)))
@settings(max_examples=examples(28), deadline=None)
def test_invented_mutations_come_back(seed: int, version: int) -> None:
    inventor = Inventor(seed, unsigned=version >= 8, epochs=version == 9)
    tables = [inventor.table() for _ in range(inventor.random.choice((1, 1, 3)))]
    mutation, headers = inventor.mutation(tables)
    payload = encode(mutation, Stats(*inventor.least()), headers)
    assert decode_mutation(payload, version, {made.id: made for made in tables}.get) == mutation


@pytest.mark.slow
@given(SEEDS, st.sampled_from((8, 9)), st.data())
@settings(max_examples=examples(60), deadline=None)
def test_damaged_mutations_fail_as_promised(seed: int, version: int, data: st.DataObject) -> None:
    inventor = Inventor(seed, unsigned=True, epochs=version == 9)
    made = inventor.table()
    mutation, headers = inventor.mutation([made])
    payload = bytearray(encode(mutation, Stats(), headers))
    for at in data.draw(st.lists(st.integers(0, len(payload) - 1), min_size=1, max_size=4)):
        payload[at] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.sampled_from((len(payload), data.draw(st.integers(0, len(payload))))))
    with suppress(DecodeError, UnknownTableError):
        decode_mutation(bytes(payload[:cut]), version, {made.id: made}.get)


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_any_bytes_fail_as_promised(tail: bytes) -> None:
    with suppress(DecodeError):
        decode_mutation(HEAD + tail, 7, {TABLE_ID: SIMPLE}.get)


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.sampled_from([None, 7, 1 << 40]), st.binary(max_size=300))
def test_it_is_the_one_that_was_written(written: int, epoch: int | None, key: bytes) -> None:
    """Any time, any key, with a table's epoch and without."""
    row = Row(clustering=(), marker=Marker(written))
    update = PartitionUpdate(table=TABLE, key=key, items=(row,), metadata_epoch=epoch)
    payload = encode(Mutation(updates=(update,)), Stats(timestamp=written), [((), ())])
    assert oldest_write(payload, 8 if epoch is None else 9) == written


def test_what_says_nothing() -> None:
    """An empty update, a version that nobody knows, and bytes that end before."""
    empty = encode(Mutation(updates=(PartitionUpdate(table=TABLE, key=b"k"),)), Stats(), [((), ())])
    assert oldest_write(empty, 8) is None
    assert oldest_write(deletion(TABLE, b"k"), 5) is None


@pytest.mark.parametrize("end", range(1 + 16 + 1 + 1 + 1))
def test_a_cut_anywhere(end: int) -> None:
    """None, and no error: the reader of the mutation will say it."""
    assert oldest_write(deletion(TABLE, b"k")[:end], 7) is None
