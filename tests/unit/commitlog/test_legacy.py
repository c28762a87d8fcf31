"""Cassandra's own test segments (test/data/legacy-commitlog of its source tree): cells and hash that its tests expect.

They are too large to be kept here: TAILRACE_LEGACY_FIXTURES names the directory that has them.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest

from tailrace.commitlog.descriptor import read_descriptor
from tailrace.commitlog.model import Row
from tailrace.commitlog.mutation import decode_mutation, first_table
from tailrace.commitlog.sections import sections
from tailrace_schemas.cql.types import parse_type
from tailrace_schemas.errors import CorruptError, TruncatedError, UnsupportedError
from tailrace_schemas.table import Column, ColumnKind, Table
from tests.unit.commitlog.recorded import read_until_damage

PLACE: Final = "TAILRACE_LEGACY_FIXTURES"
pytestmark = pytest.mark.skipif(
    PLACE not in os.environ,
    reason=f"{PLACE} is not set: the directory test/data/legacy-commitlog of Cassandra's source",
)

# folder, and what its hash.txt says: table id, cells, hash; then the mutations in its files, of all tables.
HASHED: Final = [
    ("3.4-encrypted", "c5b59a80-b25b-11e6-b205-bb359f887ad3", 14561, 2026350947, 14562),
    ("4.0.11-encrypted", "657e5210-7cbb-11ee-9858-c9aa1eb53e69", 355, -918027651, 358),
]


def files(folder: str) -> Iterator[bytes]:
    """The folder's segments, oldest first."""
    directory = Path(os.environ[PLACE]) / folder
    if not directory.is_dir():
        pytest.skip(f"{directory} is not there")
    for path in sorted(directory.glob("CommitLog-*.log")):
        yield path.read_bytes()


def standard1(table_id: str) -> Table:
    """The table of all of them, by the book: key ascii, col ascii, val blob, val0 blob, PRIMARY KEY (key, col)."""

    def column(name: str, kind: ColumnKind, cql: str, position: int = -1) -> Column:
        return Column(name, name.encode(), kind, parse_type(cql), position)

    return Table(
        keyspace="Keyspace1",
        name="Standard1",
        id=UUID(table_id),
        partition_key=(column("key", ColumnKind.PARTITION_KEY, "ascii", 0),),
        clustering=(column("col", ColumnKind.CLUSTERING, "ascii", 0),),
        regular=(column("val", ColumnKind.REGULAR, "blob"), column("val0", ColumnKind.REGULAR, "blob")),
    )


def folded(value: bytes) -> int:
    """A cell's part of the hash (CommitLogTestReplayer.hash): bytes shifted by 0, 8, 16, 24, 0, ... bits, summed."""
    return sum(byte << 8 * (place % 4) for place, byte in enumerate(value))


@pytest.mark.parametrize(("folder", "table_id", "cells", "hashed", "mutations"), HASHED)
def test_cells_and_hash(folder: str, table_id: str, cells: int, hashed: int, mutations: int) -> None:
    table = standard1(table_id)
    count, total, seen = 0, 0, 0
    for data in files(folder):
        version = read_descriptor(data).version
        found, error = read_until_damage(data)
        assert error is None
        for frame in found:
            seen += 1
            if first_table(frame.payload, version)[1] != table.id:
                continue
            for update in decode_mutation(frame.payload, version, {table.id: table}.get).updates:
                for item in update.items:
                    assert isinstance(item, Row)
                    if (item.clustering[0] or b"").startswith(b"name"):
                        count += len(item.cells)
                        total += sum(folded(cell.value or b"") for cell in item.cells)
    signed = (total + 2**31) % 2**32 - 2**31
    assert (count, signed, seen) == (cells, hashed, mutations)


def test_encrypted_segments_need_their_key() -> None:
    data = next(files("3.4-encrypted"))
    with pytest.raises(UnsupportedError, match="no key for alias 'testing:1'"):
        list(sections(read_descriptor(data), data))


@pytest.mark.parametrize(
    ("folder", "version"), [("2.1", 4), ("2.2", 5), ("2.2-lz4-bitrot", 5), ("2.2-lz4-truncated", 5)]
)
def test_older_versions_are_refused_by_number(folder: str, version: int) -> None:
    for data in files(folder):
        with pytest.raises(UnsupportedError, match=f"segment version {version} is not read"):
            read_descriptor(data)


def renumbered(data: bytes) -> bytes:
    """A segment of version 5 as one of version 6: below the mutation the two are the same."""
    segment = int.from_bytes(data[4:12], "big", signed=True)
    length = int.from_bytes(data[12:14], "big")
    head = (6).to_bytes(4, "big") + (segment & 0xFFFFFFFF).to_bytes(4, "big") + (segment >> 32).to_bytes(4, "big")
    checksum = zlib.crc32(data[14 : 14 + length], zlib.crc32(head + length.to_bytes(4, "big")))
    return (6).to_bytes(4, "big") + data[4 : 14 + length] + checksum.to_bytes(4, "big") + data[18 + length :]


def test_frames_of_version_5() -> None:
    assert [(len(found), error) for found, error in map(read_until_damage, map(renumbered, files("2.2")))] == [
        (6449, None),
        (0, None),
    ]


def test_a_truncated_file_gives_everything_before() -> None:
    (data,) = map(renumbered, files("2.2-lz4-truncated"))
    found, error = read_until_damage(data)
    assert isinstance(error, TruncatedError)
    assert error.offset == 837068
    # 14 mutations of the table and perhaps others were in what was cut off.
    assert 6037 <= len(found) < 6134


def test_one_rotten_byte_costs_its_section() -> None:
    (data,) = map(renumbered, files("2.2-lz4-bitrot"))
    found, error = read_until_damage(data)
    assert isinstance(error, CorruptError)
    assert "wrong checksum" in str(error)
    hit = next(s for s in sections(read_descriptor(data), data) if s.start.marker <= 77777 < s.end.marker)
    assert hit.logical <= (error.offset or 0) < hit.end.logical
    assert all(frame.end <= (error.offset or 0) for frame in found)
