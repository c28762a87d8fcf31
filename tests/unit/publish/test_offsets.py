"""The offsets record, there and back."""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.publish.offsets import (
    OffsetsError,
    agent_name,
    agent_of,
    decode_offsets,
    decode_parked,
    encode_offsets,
    encode_parked,
    host_key,
    offsets_key,
    parked_key,
    read_offsets,
)
from tailrace.state import Parked, Quarantined, Resume, Truncation
from tailrace_schemas.position import Position
from tests.properties import examples

NUMBERS = st.integers(0, 2**63 - 1)
RESUMES = st.builds(
    Resume,
    st.none() | st.builds(Position, NUMBERS, NUMBERS, NUMBERS),
    st.lists(st.tuples(NUMBERS, NUMBERS)).map(tuple),
    st.lists(st.builds(Quarantined, NUMBERS, NUMBERS, NUMBERS, st.text())).map(tuple),
    st.none() | st.builds(Position, NUMBERS, NUMBERS, NUMBERS),
    truncations=st.lists(
        st.builds(
            Truncation,
            st.builds(Position, NUMBERS, NUMBERS, NUMBERS),
            st.uuids(),
            NUMBERS,
            st.tuples(st.integers(-1, 2**63 - 1), NUMBERS),
            st.booleans(),
        )
    ).map(tuple),
    truncated=st.none() | st.lists(st.tuples(st.uuids(), NUMBERS, st.booleans())).map(tuple),
    metadata=st.none() | st.tuples(NUMBERS, st.none() | NUMBERS),
    unread=st.lists(st.tuples(NUMBERS, NUMBERS)).map(tuple),
    reported=st.lists(st.tuples(NUMBERS, NUMBERS)).map(tuple),
)


LOTS = st.builds(
    Parked,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    st.uuids(),
    NUMBERS,
    st.lists(NUMBERS, min_size=1).map(tuple),
    NUMBERS,
    st.text(),
    st.booleans(),
)


@pytest.mark.slow
@given(st.text(), st.lists(LOTS, unique_by=lambda lot: lot.key), RESUMES)
def test_lots_of_parked_mutations_come_back_equal(cluster: str, lots: list[Parked], resume: Resume) -> None:
    """By their keys and values, behind tombstones too; those of other hosts are not ours."""
    host = "7d4b5b3e-0c8e-4a6f-9d6e-9f1b2c3d4e5f"
    found = [(parked_key(cluster, host, lot.key), encode_parked(lot)) for lot in lots]
    assert [decode_parked(key, value) for key, value in found] == lots
    others = [(parked_key(cluster, "other", lot.key), encode_parked(lot)) for lot in lots]
    there = [*others, *found, (offsets_key(cluster, host), encode_offsets(resume))]
    assert read_offsets(cluster, host, there) == replace(resume, parked=tuple(sorted(lots, key=lambda lot: lot.key)))
    assert read_offsets(cluster, host, [*there, *((key, None) for key, _ in found)]) == resume
    assert {host_key(key) for key, _ in found} <= {(cluster, host, True)}
    assert host_key(offsets_key(cluster, host)) == (cluster, host, False)


@pytest.mark.parametrize("value", [b"{}", b"[]", b"x", b'{"version": 9}'])
def test_a_lot_that_is_none_of_ours_stops_the_agent(value: bytes) -> None:
    """With the key, and never by leaving it out."""
    key = parked_key("c", "h", (1, 2, UUID(int=3), 4))
    with pytest.raises(OffsetsError, match="parked"):
        read_offsets("c", "h", [(key, value)])


@pytest.mark.slow
@settings(max_examples=examples(16))
@given(RESUMES)
def test_comes_back_equal(resume: Resume) -> None:
    """Whatever is in it."""
    assert decode_offsets(encode_offsets(resume)) == resume


def test_reads_as_the_contract_says() -> None:
    """UTF-8 JSON, docs/contracts.md section 1."""
    schema = Position(1, 1795247025693, 20)
    table_id = UUID("2be43760-e57f-11f1-8599-73518cff440e")
    resume = Resume(
        Position(1, 1795247025692, 4711),
        ((1795247025692, 0xCAFE),),
        schema=schema,
        truncations=(Truncation(schema, table_id, 1795247025000, (1795247025692, 5)),),
        truncated=((table_id, 1795247025000, False),),
        metadata=(7, 8),
    )
    assert json.loads(encode_offsets(resume, "4f2a", 3)) == {
        "position": {"epoch": 1, "segment": 1795247025692, "offset": 4711},
        "schema": {"epoch": 1, "segment": 1795247025693, "offset": 20},
        "open": [[1795247025692, 0xCAFE]],
        "quarantined": [],
        "unread": [],
        "reported": [],
        "truncations": [
            [
                "2be43760-e57f-11f1-8599-73518cff440e",
                {"epoch": 1, "segment": 1795247025693, "offset": 20},
                1795247025000,
                [1795247025692, 5],
                False,
            ]
        ],
        "truncated": [["2be43760-e57f-11f1-8599-73518cff440e", 1795247025000, False]],
        "metadata": [7, 8],
        "agent": "4f2a",
        "records": 3,
        "version": 1,
    }
    assert agent_of(encode_offsets(resume, "4f2a")) == "4f2a"
    assert agent_of(encode_offsets(resume)) is None
    assert agent_of(b'{"version": 1, "position": null, "open": []}') is None


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
        b'{"version": 1, "position": null, "open": []}',
    ],
)
def test_a_foreign_record_is_refused(value: bytes) -> None:
    """Nothing is guessed: a wrong position repeats or loses changes."""
    with pytest.raises(OffsetsError, match="not one of ours"):
        decode_offsets(value)


def test_the_key_names_cluster_and_host() -> None:
    host = "e7468040-0b01-467f-ba44-c6edc003e205"
    assert offsets_key("Prüfung", host) == f"Prüfung/{host}".encode()


@pytest.mark.parametrize(
    ("id", "name"),
    [(f"box1, pid 12, {'0a' * 16}", "box1, pid 12"), (f"by hand {'0a' * 16}", "by hand"), ("", "")],
)
def test_an_agent_is_named_by_its_machine_and_process(id: str, name: str) -> None:
    assert agent_name(id) == name
