"""What an index may be seen to hold, and what is known after several reads of it."""

from __future__ import annotations

import pytest

from tailrace.segments.index import Index, advance, parse_index


@pytest.mark.parametrize(
    ("content", "index", "why"),
    [
        (b"", None, "seen between truncation and writing"),
        (b"560288", Index(560288), "no trailing newline in Cassandra's own"),
        (b"560288\n", Index(560288), "restored by an editor"),
        (b"843210\nCOMPLETED", Index(843210, True), "a closed segment"),
        (b"843210\nCOMPLETED\n", Index(843210, True), "the same, restored by an editor"),
        (b"843210\nCOMPLET", Index(843210), "half of the word says nothing"),
        (b"56", Index(56), "a prefix of the digits is a smaller number"),
        (b"0", Index(0), "nothing released"),
        (b"\nCOMPLETED", None, "no number"),
        (b"12a", None, "no number"),
        (b"-5", None, "no number"),
        (b"99999999999999999999", None, "beyond any offset"),
        (bytes(20), None, "zeros"),
    ],
)
def test_parses(content: bytes, index: Index | None, why: str) -> None:
    """Each content, whole."""
    assert parse_index(content) == index, why


def test_a_cut_anywhere_never_releases_more() -> None:
    """Whatever prefix is seen, it is at most what stands there; completion shows only whole."""
    content = b"843210\nCOMPLETED"
    for end in range(len(content)):
        seen = parse_index(content[:end])
        assert seen is None or (seen.offset <= 843210 and not seen.completed)


@pytest.mark.parametrize(
    ("known", "read", "after"),
    [
        (None, None, None),
        (None, Index(5), Index(5)),
        (Index(5), None, Index(5)),
        (Index(5), Index(9), Index(9)),
        (Index(9), Index(5), Index(9)),
        (Index(9), Index(5, True), Index(9, True)),
        (Index(9, True), Index(20), Index(20, True)),
    ],
)
def test_never_goes_back(known: Index | None, read: Index | None, after: Index | None) -> None:
    """Offsets only grow, a closed segment stays closed."""
    assert advance(known, read) == after
