"""Names in cdc_raw to segments."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tailrace.segments.files import Index, Listing, SegmentFiles, advance, list_segments, pair, parse_index

RAW = Path("/raw")


def test_pairs_logs_with_indexes_by_the_number_of_their_id() -> None:
    """Sorted as numbers, both spellings of an index, either file alone."""
    names = [
        "CommitLog-7-1000.log",
        "CommitLog-7-999.log",
        "CommitLog-7-999_cdc.idx",
        "CommitLog-8-1000-CDC.idx",
        "CommitLog-7-20_cdc.idx",
    ]
    assert pair(RAW, names).segments == (
        SegmentFiles(20, None, RAW / "CommitLog-7-20_cdc.idx"),
        SegmentFiles(999, RAW / "CommitLog-7-999.log", RAW / "CommitLog-7-999_cdc.idx"),
        SegmentFiles(1000, RAW / "CommitLog-7-1000.log", RAW / "CommitLog-8-1000-CDC.idx"),
    )


def test_leaves_foreign_names_alone() -> None:
    """Also those that are nearly ours: a pre-1.2 name, a partial copy, an index of nothing."""
    foreign = ("CommitLog-7-1.log.tmp", "CommitLog-99.log", "CommitLog-7-.log", "CommitLog-7-1_cdc.idx~", "lost+found")
    assert pair(RAW, foreign) == Listing((), tuple(sorted(foreign)))


def test_lists_a_real_directory(tmp_path: Path) -> None:
    """Empty, then with a segment."""
    assert list_segments(tmp_path) == Listing((), ())
    (tmp_path / "CommitLog-7-1.log").touch()
    assert list_segments(tmp_path).segments == (SegmentFiles(1, tmp_path / "CommitLog-7-1.log", None),)


def test_what_is_no_file_is_foreign_whatever_its_name(tmp_path: Path) -> None:
    """Directories, pipes, links that lead nowhere, and the index of such a log; a link to a file is one."""
    (tmp_path / "CommitLog-7-1.log").mkdir()
    (tmp_path / "CommitLog-7-1_cdc.idx").touch()
    (tmp_path / "CommitLog-7-2_cdc.idx").mkdir()
    os.mkfifo(tmp_path / "CommitLog-7-3.log")
    (tmp_path / "CommitLog-7-4.log").symlink_to(tmp_path / "CommitLog-7-4.log")
    (tmp_path / "CommitLog-7-5.log").symlink_to(tmp_path / "CommitLog-7-1_cdc.idx")
    assert list_segments(tmp_path) == Listing(
        (SegmentFiles(5, tmp_path / "CommitLog-7-5.log", None),),
        (
            "CommitLog-7-1.log",
            "CommitLog-7-1_cdc.idx",
            "CommitLog-7-2_cdc.idx",
            "CommitLog-7-3.log",
            "CommitLog-7-4.log",
        ),
    )


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
