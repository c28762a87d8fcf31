"""The offsets record, there and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.capture.cdcraw import Quarantined, Resume
from tailrace.position import Position
from tailrace.publish.offsets import OffsetsError, decode_offsets, encode_offsets, offsets_key

NUMBERS = st.integers(0, 2**63 - 1)
RESUMES = st.builds(
    Resume,
    st.none() | st.builds(Position, NUMBERS, NUMBERS, NUMBERS),
    st.lists(st.tuples(NUMBERS, NUMBERS)).map(tuple),
    st.lists(st.builds(Quarantined, NUMBERS, NUMBERS, NUMBERS, st.text())).map(tuple),
    st.none() | st.builds(Position, NUMBERS, NUMBERS, NUMBERS),
    st.lists(st.tuples(NUMBERS, NUMBERS)).map(tuple),
    st.lists(st.tuples(NUMBERS, NUMBERS)).map(tuple),
)


@given(RESUMES)
def test_comes_back_equal(resume: Resume) -> None:
    """Whatever is in it."""
    assert decode_offsets(encode_offsets(resume)) == resume


def test_reads_as_the_contract_says() -> None:
    """UTF-8 JSON, docs/contracts.md section 1."""
    schema = Position(1, 1795247025693, 20)
    resume = Resume(Position(1, 1795247025692, 4711), ((1795247025692, 0xCAFE),), schema=schema)
    assert json.loads(encode_offsets(resume)) == {
        "position": {"epoch": 1, "segment": 1795247025692, "offset": 4711},
        "schema": {"epoch": 1, "segment": 1795247025693, "offset": 20},
        "open": [[1795247025692, 0xCAFE]],
        "quarantined": [],
        "unread": [],
        "reported": [],
        "parked": [],
        "version": 1,
    }


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff",
        b'{"version": 1, "position": 5, "open": []}',
        b'{"version": 1, "position": null, "open": [5]}',
        b'{"version": "1", "position": null, "open": []}',
    ],
)
def test_a_foreign_record_is_refused(value: bytes) -> None:
    """Nothing is guessed: a wrong position repeats or loses changes."""
    with pytest.raises(OffsetsError, match="not one of ours"):
        decode_offsets(value)


def test_a_later_version_is_refused() -> None:
    """By its number."""
    with pytest.raises(OffsetsError, match="version 2"):
        decode_offsets(b'{"version": 2}')


def test_a_version_1_record_without_later_additions_is_read() -> None:
    """`quarantined` may be missing."""
    assert decode_offsets(b'{"version": 1, "position": null, "open": []}') == Resume()


def test_the_key_names_cluster_and_host() -> None:
    host = "e7468040-0b01-467f-ba44-c6edc003e205"
    assert offsets_key("Prüfung", host) == f"Prüfung/{host}".encode()
