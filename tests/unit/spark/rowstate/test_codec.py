"""States to bytes and back: one form, every cut refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.change import Change, Deletion, Marker
from tailrace_schemas.errors import DecodeError, UnsupportedError
from tailrace_spark.rowstate.cells import CellState
from tailrace_spark.rowstate.codec import decode_deletion, decode_state, encode_deletion, encode_state
from tailrace_spark.rowstate.row import ColumnState, RowState
from tests.unit.spark.changes import absorbed, row_changes

EXTREME = RowState(
    Marker(2**63 - 1, 2**31 - 1, 2**32 - 1),
    Deletion(-(2**63) + 1, 0),
    {
        b"": ColumnState(Deletion(-1, -1), {b"": CellState(0, None, None, b""), b"a": CellState(5, 1, 2, b"x" * 300)}),
        "é".encode(): ColumnState(None, {None: CellState(-(2**63), None, 2**31, None)}),
        b"n": ColumnState(None, {None: CellState(7, None, 1, None), b"s" * 33: CellState(8, None, None, b"")}, True),
        b"s": ColumnState(None, {b"k": CellState(9, None, None, b"", b"path"), b"j": CellState(9, 1, 2, b"", b"")}),
    },
)
VECTORS = [
    (RowState(), "02000000"),
    (RowState(Marker(1)), "020102000000"),
    (
        RowState(None, None, {b"v": ColumnState(None, {None: CellState(2, None, None, b"\x01")})}),
        "0200040101760001020101",
    ),
    (
        RowState(None, None, {b"v": ColumnState(None, {b"k": CellState(2, None, None, b"", b"p")})}),
        "02000401017600012301" + "6b00" + "0170",
    ),
    (
        RowState(None, None, {b"n": ColumnState(None, {None: CellState(2, None, 9, None)}, counter=True)}),
        "0200040101" + "6e0201" + "0812",
    ),
    (RowState(Marker(1), strict=True), "020502000000"),
]


@pytest.mark.slow
@given(st.lists(row_changes(), max_size=4))
def test_round_trip(changes: list[Change]) -> None:
    state = absorbed(*changes)
    assert decode_state(encode_state(state)) == state


@pytest.mark.parametrize(("state", "encoded"), VECTORS)
def test_the_bytes_do_not_change(state: RowState, encoded: str) -> None:
    assert encode_state(state).hex() == encoded


def test_order_of_insertion_does_not_show() -> None:
    turned = RowState(EXTREME.marker, EXTREME.deletion, dict(reversed(EXTREME.columns.items())))
    assert encode_state(turned) == encode_state(EXTREME)
    assert decode_state(encode_state(EXTREME)) == EXTREME


def test_every_cut_and_every_trailing_byte_is_refused() -> None:
    encoded = encode_state(EXTREME)
    for end in range(len(encoded)):
        with pytest.raises(DecodeError):
            decode_state(encoded[:end])
    with pytest.raises(DecodeError, match="after its end"):
        decode_state(encoded + b"\0")


@pytest.mark.parametrize("number", [1, 3])
def test_another_format_is_named(number: int) -> None:
    with pytest.raises(UnsupportedError, match=f"format {number}"):
        decode_state(bytes([number]) + encode_state(RowState())[1:])


@given(st.builds(Deletion, st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**32)), st.one_of(st.none(), st.binary()))
def test_deletions_round_trip(deletion: Deletion, end: bytes | None) -> None:
    encoded = encode_deletion(deletion, end)
    assert decode_deletion(encoded) == (deletion, end)
    for cut in range(len(encoded)):
        with pytest.raises(DecodeError):
            decode_deletion(encoded[:cut])
