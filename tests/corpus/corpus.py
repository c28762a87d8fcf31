"""A recorded corpus: a folder with segments, definitions, what was executed, and what the node then answered.

    corpus.json         seed, release, keyspace, and the version of the segments
    statements.cql      what was executed, one a line; refused statements begin with `--`
    definitions.jsonl   every table of the keyspace, as tailrace_schemas.table_json writes it
    view.jsonl          each table's SELECT: {"id", "asked": [seconds before, after], "columns", "rows"}
    segments/           the segments of the commit log, whole

Values in rows are the node's bytes as hexadecimal digits, null for null. A column is [name, what]: what is `value`,
`writetime` or `ttl`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from tailrace.commitlog.blocks import NO_KEYS, Keys
from tailrace.commitlog.descriptor import parse_name, read_descriptor
from tailrace.commitlog.frames import frames
from tailrace.commitlog.mutation import first_table
from tailrace.commitlog.sections import sections
from tailrace_schemas.change import Source
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table
from tailrace_schemas.table_json import table_from_json, table_to_json

_T = TypeVar("_T")
_NAMES = ("corpus.json", "statements.cql", "definitions.jsonl", "view.jsonl", "segments")


@dataclass(frozen=True, slots=True)
class View:
    """What one SELECT of a whole table answered. `asked` are seconds since the epoch before and after it."""

    table: UUID
    asked: tuple[int, int]
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[bytes | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Logged:
    """One mutation as it stands in a segment of that version."""

    payload: bytes
    version: int
    source: Source


@dataclass(frozen=True, slots=True)
class Corpus:
    """A corpus in memory. Tables by id, all that the log may name; views too, of those that were there at the end."""

    facts: dict[str, Any]
    tables: dict[UUID, Table]
    views: dict[UUID, View]
    segments: dict[str, bytes]
    keys: Keys = NO_KEYS

    def mutations(self) -> Iterator[Logged]:
        """Those of its tables, in the order of the log."""
        for _, data in sorted(self.segments.items(), key=lambda item: segment_id(item[0])):
            yield from logged_in(data, self.tables, self.keys)

    @property
    def codecs(self) -> frozenset[str | None]:
        """How its segments are encrypted or compressed; None for those that are neither."""
        descriptors = [read_descriptor(data) for data in self.segments.values()]
        return frozenset(descriptor.cipher or descriptor.compression for descriptor in descriptors)

    @property
    def versions(self) -> frozenset[int]:
        return frozenset(read_descriptor(data).version for data in self.segments.values())


def logged_in(segment: bytes, tables: Container[UUID], keys: Keys = NO_KEYS) -> Iterator[Logged]:
    """The mutations of a segment that begin with one of these tables, in its order."""
    descriptor = read_descriptor(segment)
    for section in sections(descriptor, segment, keys=keys):
        for frame in frames(section):
            if first_table(frame.payload, descriptor.version)[1] in tables:
                source = Source("host", "dc", Position(1, descriptor.id, frame.end), 0, 0)
                yield Logged(frame.payload, descriptor.version, source)


def segment_id(name: str) -> int:
    """The id in a segment's name."""
    parsed = parse_name(name)
    if parsed is None:
        raise ValueError(f"{name} is no segment")
    return parsed[1]


def write_corpus(
    folder: Path,
    facts: dict[str, Any],
    statements: Iterable[str],
    tables: Iterable[Table],
    views: Iterable[View],
    segments: Sequence[Path],
) -> None:
    """Write everything; the folder must be new or hold an earlier corpus."""
    (folder / "segments").mkdir(parents=True, exist_ok=True)
    if strangers := {path.name for path in folder.iterdir()} - set(_NAMES):
        raise ValueError(f"{folder} holds {min(strangers)}: not a corpus, give a new folder")
    for old in (folder / "segments").iterdir():
        old.unlink()
    for segment in segments:
        (folder / "segments" / segment.name).write_bytes(segment.read_bytes())
    (folder / "corpus.json").write_text(json.dumps(facts, indent=1) + "\n")
    (folder / "statements.cql").write_text("".join(f"{statement}\n" for statement in statements))
    _write_lines(folder / "definitions.jsonl", map(table_to_json, tables))
    _write_lines(folder / "view.jsonl", map(_view_to_json, views))


def read_corpus(folder: Path, keys: Keys = NO_KEYS) -> Corpus:
    """The corpus that `write_corpus` wrote; `keys` open its segments where they are encrypted."""
    tables = list(_read_lines(folder / "definitions.jsonl", table_from_json))
    views = list(_read_lines(folder / "view.jsonl", _view_from_json))
    return Corpus(
        json.loads((folder / "corpus.json").read_text()),
        {table.id: table for table in tables},
        {view.table: view for view in views},
        {path.name: path.read_bytes() for path in sorted((folder / "segments").iterdir())},
        keys,
    )


def _write_lines(path: Path, values: Iterable[object]) -> None:
    path.write_text("".join(f"{json.dumps(value)}\n" for value in values))


def _read_lines(path: Path, read: Callable[[Any], _T]) -> Iterator[_T]:
    return (read(json.loads(line)) for line in path.read_text().splitlines())


def _view_to_json(view: View) -> dict[str, object]:
    rows = [[None if value is None else value.hex() for value in row] for row in view.rows]
    return {"id": str(view.table), "asked": view.asked, "columns": view.columns, "rows": rows}


def _view_from_json(value: dict[str, Any]) -> View:
    return View(
        UUID(value["id"]),
        (value["asked"][0], value["asked"][1]),
        tuple((name, what) for name, what in value["columns"]),
        tuple(tuple(None if item is None else bytes.fromhex(item) for item in row) for row in value["rows"]),
    )
