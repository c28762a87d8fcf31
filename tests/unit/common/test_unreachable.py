"""What is said of a service that cannot be connected to, by the words of its client."""

from __future__ import annotations

import socket

import pytest

from tailrace_common.unreachable import connection_fault, unreachable, with_next_try


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ('connection to server at "127.0.0.1", port 1 failed: Connection refused Is the server running', "refused"),
        ("Can't connect to MySQL server on '127.0.0.1' ([Errno 111] Connection refused)", "refused"),
        ("ipv4#127.0.0.1:1 failed: Connection refused (after 0ms in state CONNECT)", "refused"),
        ("('Unable to connect to any servers', {'10.0.0.1': ConnectionRefusedError(111, 'Connection refused')})",
         "refused"),
        ("connection timeout expired", "no answer in time"),
        ("Connection to 10.0.0.1 timed out. (connect timeout=5)", "no answer in time"),
        ("could not translate host name \"db\" to address: Name or service not known", "unknown host"),
        ("[Errno -3] Temporary failure in name resolution", "unknown host"),
        ("[Errno 113] No route to host", "no route to host"),
        ('password authentication failed for user "u"', None),
        ("canceling statement due to lock timeout", None),
        ("the connection was closed by the server", None),
    ],
)  # fmt: skip
def test_why_no_connection_was_made(said: str, fault: str | None) -> None:
    told = connection_fault(said)
    assert (told is None) if fault is None else (told or "").endswith(fault)


def test_the_words_of_the_system_are_known() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    with pytest.raises(OSError, match="refused") as raised:
        socket.create_connection(address)
    error = unreachable("the store", str(raised.value), "the database")
    assert str(error) == "Cannot connect to the store (connection refused). Start the database or fix its address."


@pytest.mark.parametrize(
    ("words", "seconds", "told"),
    [
        ("it fails", 0.5, "it fails. Next try in 0.5 s."),
        ("Start it.", 1, "Start it. Next try in 1 s."),
        ("Is it up?", 300, "Is it up? Next try in 5 min."),
    ],
)
def test_a_next_try_is_told_behind_the_words(words: str, seconds: float, told: str) -> None:
    assert with_next_try(words, seconds) == told
