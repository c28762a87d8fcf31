"""Segments that real Cassandra wrote, with what Cassandra's own reader makes of them."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from tailrace.commitlog.blocks import Keys
from tailrace.commitlog.descriptor import SegmentData, read_descriptor
from tailrace.commitlog.frames import Frame, frames
from tailrace.commitlog.sections import Section, sections
from tailrace_schemas.definitions import read_schema_file
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.system_tables import system_tables
from tailrace_schemas.table import Table

ROOT: Final = Path(__file__).parents[2] / "fixtures" / "commitlog"
# The rollover folder has two segments, the others one.
KINDS: Final = (
    "3.11.17/uncompressed",
    "3.11.17/lz4",
    "3.11.17/deflate",
    "3.11.17/encrypted",
    "3.11.17/compact-storage",
    "4.0-beta4/uncompressed",
    "4.0-beta4/lz4",
    "4.0-beta4/snappy",
    "4.0-beta4/deflate",
    "4.0-beta4/noop",
    "4.0-beta4/encrypted",
    "4.0-beta4/rollover-uncompressed",
    "5.0.1/uncompressed",
    "5.0.1/lz4",
    "5.0.1/snappy",
    "5.0.1/zstd",
    "5.0.1/directio",
    "5.0.1/compat-cassandra4-v7",
    "6.0-alpha2/uncompressed",
)
# The key of Cassandra's own test keystore (test/conf/cassandra.keystore), which is public.
KEY: Final = bytes.fromhex("b7d96fb9b11d829179aeeb0b4e81f97a")
KEYS: Final = Keys({"testing:1": KEY})


@dataclass(frozen=True, slots=True)
class Recorded:
    """One folder: segment files by name, and the lines of its two descriptions."""

    kind: str
    segments: dict[str, bytes]
    schema: tuple[str, ...]
    expected: tuple[dict[str, Any], ...]

    @property
    def segment(self) -> bytes:
        """The first segment."""
        return next(iter(self.segments.values()))

    def tables(self) -> dict[UUID, Table]:
        """Every definition that the folder's mutations need, by id."""
        defined = read_schema_file(self.schema).definitions.tables
        return {table.id: table for table in (*system_tables(), *defined)}

    def unpack(self, directory: Path) -> tuple[list[Path], Path]:
        """The segments and the schema as files, for a command."""
        paths = [directory / name for name in self.segments]
        for path in paths:
            path.write_bytes(self.segments[path.name])
        schema = directory / "schema.jsonl"
        schema.write_text("".join(self.schema), encoding="utf-8")
        return paths, schema


@cache
def recorded(kind: str) -> Recorded:
    """A folder's content, uncompressed."""
    folder = ROOT / kind
    files = {path.name.removesuffix(".gz"): _read(path) for path in sorted(folder.iterdir())}
    return Recorded(
        kind,
        {name: data for name, data in files.items() if name.endswith(".log")},
        tuple(files.get("schema.jsonl", b"").decode().splitlines(keepends=True)),
        tuple(json.loads(line) for line in files.get("expected.jsonl", b"").splitlines()),
    )


def _read(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def sections_of(data: SegmentData) -> list[Section]:
    """All sections of an undamaged segment."""
    return list(sections(read_descriptor(data), data, keys=KEYS))


def read_until_damage(data: SegmentData) -> tuple[list[Frame], DecodeError | None]:
    """The frames that are delivered before damage, and the damage."""
    found: list[Frame] = []
    try:
        for section in sections(read_descriptor(data), data, keys=KEYS):
            # Not extend: it would lose what the generator gave before it failed.
            for frame in frames(section):
                found.append(frame)  # noqa: PERF402
    except DecodeError as error:
        return found, error
    return found, None
