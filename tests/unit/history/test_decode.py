"""Many mutations in a row: what `messages_at` says of each, up to the first that it is to be asked about itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.changes.transcode import Message, Transcoder
from tailrace.commitlog.entry import Entry
from tailrace.history.decode import Definitions, messages_at, source_at
from tailrace.history.schema import SchemaHistory
from tailrace_schemas.change import Source
from tailrace_schemas.position import NO_POSITION, Position
from tailrace_schemas.system_tables import system_tables
from tests.unit.mutations import EPOCH, deletion, insertion, mutation
from tests.unit.tables import table

A = table({"id": "text"}, name="a", table_id=UUID(int=1))
B = replace(table({"id": "text"}, name="b", table_id=UUID(int=2)), cdc=False)
C = replace(table({"id": "text"}, name="c", keyspace="other", table_id=UUID(int=3)), cdc=False)
D = table({"id": "text"}, name="d", table_id=UUID(int=4))
UNKNOWN = UUID(int=9)
NODE = Source("h", "dc", NO_POSITION, 0, 0)
HISTORY = SchemaHistory().learn([A, B, C, D, *system_tables()])[0]

PAYLOADS = {
    "a": deletion(A, b"k"),
    "row of a": insertion(A, b"other"),
    "d": deletion(D, b"k"),
    "b": deletion(B, b"k"),
    "c": deletion(C, b"k"),
    "a and b": mutation((A, b"k", EPOCH), (B, b"k", EPOCH), (A, b"k", EPOCH + 1)),
    "b and d": mutation((B, b"k", EPOCH), (D, b"k", EPOCH)),
    "unknown": deletion(UNKNOWN, b"k"),
    "b and unknown": mutation((B, b"k", EPOCH), (UNKNOWN, b"k", EPOCH)),
    "cut": deletion(A, b"k")[:-1],
    "cut in its id": deletion(A, b"k")[:9],
    "cut of c": deletion(C, b"k")[:-1],
}
PLAIN = [name for name in PAYLOADS if name not in ("unknown", "b and unknown", "cut", "cut in its id")]


def entries(names: Iterable[str]) -> list[Entry]:
    return [Entry(1, 7, 10 * n, PAYLOADS[name], 7, "CommitLog-7-7.log") for n, name in enumerate(names, 1)]


def singly(history: SchemaHistory, found: Iterable[Entry], seen: int = 5) -> list[list[Message]]:
    transcoder = Transcoder("p")
    return [
        messages_at(history, transcoder, entry.payload, entry.version, source_at(NODE, entry.position, seen))
        for entry in found
    ]


def told(messages: Iterable[Message]) -> list[tuple[str, int, bytes, bytes]]:
    return [(str(message.table), message.token, message.key, message.value) for message in messages]


def proven(history: SchemaHistory) -> Definitions:
    definitions = Definitions(history)
    for payloads in singly(history, entries(["a", "d"])):
        definitions.prove(payloads)
    return definitions


@pytest.mark.slow
@given(st.lists(st.sampled_from(PLAIN), max_size=8), st.integers(1, 8))
def test_the_same_as_one_by_one_until_there_are_enough(names: list[str], most: int) -> None:
    given_entries, definitions, transcoder = entries(names), proven(HISTORY), Transcoder("p")
    expected = singly(HISTORY, given_entries)
    node, all_done, found = replace(NODE, seen=5), 0, list[Message]()
    while all_done < len(given_entries):
        done, messages = definitions.messages(transcoder, given_entries[all_done:], node, most)
        assert done > 0
        counts = [len(one) for one in expected[all_done : all_done + done]]
        assert sum(counts[:-1]) < most
        assert sum(counts) >= most or all_done + done == len(given_entries)
        all_done += done
        found += messages
    assert told(found) == told(message for one in expected for message in one)


def test_no_more_bytes_than_asked_for_unless_the_first_has_them() -> None:
    """The mutation that would exceed them is left whole."""
    given_entries = entries(["a", "a", "a"])
    (size,) = {
        len(one.key) + len(one.value) for one in proven(HISTORY).messages(Transcoder("p"), given_entries, NODE, 100)[1]
    }
    for bytes_left, expected in ((1, 1), (2 * size - 1, 1), (2 * size, 2), (3 * size, 3)):
        done, messages = proven(HISTORY).messages(Transcoder("p"), given_entries, NODE, 100, bytes_left)
        assert (done, len(messages)) == (expected, expected)


@pytest.mark.parametrize("trouble", ["unknown", "b and unknown", "cut", "cut in its id"])
def test_trouble_is_left_and_what_precedes_it_is_given(trouble: str) -> None:
    given_entries = entries(["a", "b", trouble, "a"])
    done, messages = proven(HISTORY).messages(Transcoder("p"), given_entries, replace(NODE, seen=5), 100)
    assert done == 2
    assert told(messages) == told(singly(HISTORY, given_entries[:1])[0])
    assert proven(HISTORY).messages(Transcoder("p"), given_entries[2:], NODE, 100) == (0, [])


def test_the_first_change_of_each_table_is_left() -> None:
    """Whether it can be published is not known before: its topic may be missing, its schema refused."""
    given_entries, definitions = entries(["b", "b and d", "d", "a"]), Definitions(HISTORY)
    assert definitions.messages(Transcoder("p"), given_entries, NODE, 100) == (1, [])
    definitions.prove(singly(HISTORY, given_entries[1:2])[0])
    done, messages = definitions.messages(Transcoder("p"), given_entries, NODE, 100)
    assert (done, [str(message.table) for message in messages]) == (3, ["ks.d", "ks.d"])


def test_a_definition_that_was_inferred_is_left() -> None:
    history = HISTORY.define(Position(1, 1, 1), [replace(D, regular=A.partition_key)], inferred=True)[0]
    done, messages = proven(history).messages(Transcoder("p"), entries(["a", "b", "b and d", "a"]), NODE, 100)
    assert (done, len(messages)) == (2, 1)


def test_the_definition_is_that_of_the_position() -> None:
    """cdc false from the second mutation on, true again at the fourth."""
    off = replace(A, cdc=False)
    history = HISTORY.define(Position(1, 7, 15), [off])[0].define(Position(1, 7, 35), [A])[0]
    definitions = Definitions(history)
    definitions.prove(singly(history, entries(["a"]))[0])
    given_entries = entries(["a", "row of a", "a", "row of a"])
    definitions.prove(singly(history, given_entries)[3])
    done, messages = definitions.messages(Transcoder("p"), given_entries, replace(NODE, seen=5), 100)
    assert done == 4
    assert told(messages) == told(message for one in singly(history, given_entries) for message in one)
    assert len(messages) == 2
