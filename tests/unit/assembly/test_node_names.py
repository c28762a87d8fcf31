"""The names of nodes, from a table instead of DNS."""

from __future__ import annotations

import threading

import pytest

from tailrace.assembly.node_names import node_names, node_words, reverse_name

NAMES = {"10.0.0.1": "cassandra-1.example", "10.0.0.2": None}


def test_each_address_has_the_name_that_is_known() -> None:
    assert node_names(NAMES, NAMES.get, seconds=60) == {"10.0.0.1": "cassandra-1.example"}


def test_a_name_server_that_does_not_answer_holds_nothing_up() -> None:
    over = threading.Event()

    def silent(address: str) -> str | None:
        return NAMES[address] if over.wait(60) else None

    assert node_names(NAMES, silent, seconds=0.01) == {}
    over.set()


def test_what_is_no_address_has_no_name() -> None:
    assert reverse_name("not an address") is None


@pytest.mark.parametrize(
    ("address", "name", "words"),
    [
        ("10.0.0.1", "cassandra-1", "cassandra-1 (10.0.0.1), host id h"),
        ("10.0.0.1", None, "10.0.0.1, host id h"),
        (None, None, "host id h"),
    ],
)
def test_a_node_in_words(address: str | None, name: str | None, words: str) -> None:
    assert node_words("h", address, name) == words
