"""Many mutations in a row: what `messages_at` says of each, up to the first that it is to be asked about itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.changes.transcode import Message, Transcoder
from tailrace.commitlog.frames import Entry
from tailrace.history.decode import Definitions, messages_at, source_at
from tailrace.history.schema import SchemaHistory
from tailrace_schemas.position import Position
from tests.unit.history.decoded import HISTORY, NODE, PAYLOADS, A, D, entries

PLAIN = [name for name in PAYLOADS if name not in ("unknown", "b and unknown", "cut", "cut in its id")]


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
