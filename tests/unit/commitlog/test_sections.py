"""Sync markers and the sections between them."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from tailrace.commitlog.sections import Cursor, Section, first_cursor, read_section, sections
from tailrace_schemas.errors import CorruptError, TruncatedError, UnsupportedError
from tests.unit.commitlog.segments import be32, descriptor, lz4_block, marker, segment_of

PLAIN = descriptor()
LZ4 = descriptor(compression="LZ4Compressor")
# 0x1a1fd0ef196 at offset 20 has this checksum: Cassandra's own value.
KNOWN = bytes.fromhex("29416f7e")


def test_a_marker_that_cassandra_wrote() -> None:
    found = read_section(descriptor(segment=0x1A1FD0EF196), bytes(20) + be32(30) + KNOWN + b"ab", Cursor(20, 20))
    assert found == Section(b"ab", 28, Cursor(20, 20), Cursor(30, 30))


def test_uncompressed_positions_are_file_offsets() -> None:
    data = segment_of(5, b"first", b"", b"third!")
    found = list(sections(PLAIN, data))
    assert [(section.data, section.logical) for section in found] == [(b"first", 28), (b"", 41), (b"third!", 49)]
    assert [section.end for section in found] == [Cursor(33, 33), Cursor(41, 41), Cursor(55, 55)]
    assert first_cursor(PLAIN) == found[0].start


def test_compressed_positions_count_uncompressed_bytes() -> None:
    long = b"x" * 5000
    data = segment_of(5, be32(5000) + lz4_block(long), be32(0) + bytes(5), be32(3) + lz4_block(b"end"))
    first, empty, last = sections(LZ4, data)
    assert (first.data, first.logical, first.end.logical) == (long, 28, 5028)
    assert first.end.marker < 200
    assert (empty.data, empty.logical, empty.end.logical) == (b"", 5036, 5036)
    assert (last.data, last.logical) == (b"end", 5044)
    assert read_section(LZ4, data, last.end) is None
    assert read_section(LZ4, data, first.end) == empty


@pytest.mark.parametrize("room", range(8))
def test_no_room_for_a_marker_is_the_end(room: int) -> None:
    assert read_section(PLAIN, bytes(20) + b"\xff" * room, Cursor(20, 20)) is None


def test_a_zero_marker_is_the_end_or_not_yet() -> None:
    assert read_section(PLAIN, bytes(4096), Cursor(20, 20)) is None


@pytest.mark.parametrize("content", [b"payload", be32(3) + lz4_block(b"end")])
def test_a_section_cut_anywhere_is_truncated(content: bytes) -> None:
    data = segment_of(5, content)
    which = PLAIN if content == b"payload" else LZ4
    for size in range(28, len(data)):
        with pytest.raises(TruncatedError, match=f"ends at {len(data)}, the file at {size}"):
            read_section(which, data[:size], Cursor(20, 20))
    for size in range(28):
        assert read_section(which, data[:size], Cursor(20, 20)) is None


def test_the_checksum_covers_id_and_place() -> None:
    for bit in range(32, 64):
        damaged = bytearray(segment_of(5, b"payload"))
        damaged[20 + bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptError, match="wrong checksum"):
            read_section(PLAIN, damaged, Cursor(20, 20))
    with pytest.raises(CorruptError):
        read_section(descriptor(segment=6), segment_of(5, b"payload"), Cursor(20, 20))
    moved = b"x" + segment_of(5, b"payload")
    with pytest.raises(CorruptError):
        read_section(PLAIN, moved, Cursor(21, 21))


def test_a_torn_marker() -> None:
    whole = marker(5, 20, 28)
    for torn in (whole[:4] + bytes(4), bytes(4) + whole[4:]):
        with pytest.raises(CorruptError):
            read_section(PLAIN, bytes(20) + torn + bytes(100), Cursor(20, 20))


@pytest.mark.parametrize("following", [-1, -(2**31), 0, 19, 20, 27])
def test_a_marker_that_points_back(following: int) -> None:
    with pytest.raises(CorruptError, match="before it begins"):
        read_section(PLAIN, bytes(20) + marker(5, 20, following) + bytes(100), Cursor(20, 20))


COMPRESSED_DAMAGE = [
    (b"", "no room for its length"),
    (b"\x00\x00\x00", "no room for its length"),
    (be32(-1), "length -1"),
    (be32(3), "LZ4 block of 0 bytes"),
    (be32(3) + b"\x03\x00\x00\x00", "LZ4 block of 4 bytes"),
    (be32(4) + lz4_block(b"end"), "states 3 bytes, its section 4"),
    (be32(3) + be32(3) + lz4_block(b"end")[4:], "states 50331648 bytes, its section 3"),
    (be32(2**30) + (2**30).to_bytes(4, "little") + lz4_block(b"end")[4:], "cannot hold 1073741824"),
    (be32(4) + b"\x04\x00\x00\x00" + lz4_block(b"end")[4:], "holds 3 bytes, not 4"),
    (be32(2) + b"\x02\x00\x00\x00" + lz4_block(b"end")[4:], "does not decompress"),
    (be32(3) + b"\x03\x00\x00\x00" + b"\xff\xff\xff\xff", "does not decompress"),
]


@pytest.mark.parametrize(("content", "reason"), COMPRESSED_DAMAGE)
def test_damaged_blocks(content: bytes, reason: str) -> None:
    with pytest.raises(CorruptError, match=reason) as caught:
        read_section(LZ4, segment_of(5, content), Cursor(20, 20))
    assert caught.value.offset == 28


def test_other_compressors_are_refused_by_name() -> None:
    which = descriptor(compression="com.example.Fast")
    with pytest.raises(UnsupportedError, match=r"com\.example\.Fast"):
        read_section(which, segment_of(5, be32(3) + b"abc"), Cursor(20, 20))
    assert read_section(which, bytes(64), Cursor(20, 20)) is None


def test_a_mapped_file_can_be_closed_while_sections_live(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(segment_of(5, be32(3) + lz4_block(b"end")))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        found = list(sections(LZ4, mapped))
    assert [section.data for section in found] == [b"end"]
