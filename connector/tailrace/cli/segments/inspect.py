"""`tailrace inspect`: what segment files are made of, without any schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final
from uuid import UUID

import typer

from tailrace.cli.support.options import DAMAGED, Key, Keystore, PasswordFile, SegmentFiles
from tailrace.commitlog.blocks import Keys
from tailrace.commitlog.descriptor import SegmentData
from tailrace.commitlog.frames import frames
from tailrace.commitlog.mutation import first_table
from tailrace.commitlog.sections import first_cursor, sections
from tailrace.segments.files import open_segment, read_named_descriptor
from tailrace.segments.keys import keys_of
from tailrace_common.cli.console import on_terminal, print_rows, say
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.system_tables import system_tables

Rows = Iterator[dict[str, object]]


_SAID_ELSEWHERE: Final = frozenset({"version", "id", "encryption", "damage"})


class Detail(StrEnum):
    """What a row of the output is."""

    SEGMENT = "segment"
    SECTION = "section"
    TABLE = "table"


def inspect(
    segments: SegmentFiles,
    by: Annotated[Detail, typer.Option(help="One row per segment, sync section, or table id.")] = Detail.SEGMENT,
    key: Key = None,
    keystore: Keystore = None,
    keystore_password_file: PasswordFile = None,
) -> None:
    """Show the parts of segment files: descriptor, sections, counts. Every checksum is verified.

    Needs no schema. `end` is the logical position after the last frame. With --by table, a mutation of several tables
    counts for its first one. A table on a terminal, JSON lines when piped. Exit code 3 when a segment is damaged.

    Example: tailrace inspect cdc_raw/CommitLog-7-1795246977430.log --by section
    """
    damages: list[str] = []
    keys = keys_of(key, keystore, keystore_password_file)
    print_rows(_fitting(row) for path in segments for row in _rows(path, _SHOW[by], keys, damages))
    for damage in damages:
        say(damage)
    if damages:
        raise typer.Exit(DAMAGED)


def _fitting(row: dict[str, object]) -> dict[str, object]:
    """On a terminal, the row without what the file's name or the words on stderr say too."""
    return {name: value for name, value in row.items() if not on_terminal() or name not in _SAID_ELSEWHERE}


def _rows(path: Path, show: Callable[[Path, SegmentData, Keys], Rows], keys: Keys, damages: list[str]) -> Rows:
    """The rows of one file, up to where it is damaged; what is wrong there is added to `damages`."""
    try:
        with open_segment(path) as data:
            yield from show(path, data, keys)
    except DecodeError as error:
        error.file = path.name
        damages.append(str(error))


def _by_segment(path: Path, data: SegmentData, keys: Keys) -> Rows:
    row: dict[str, object] = {"file": path.name, "size": len(data)}
    row |= dict.fromkeys(("version", "id", "compression", "encryption", "checksum", "end"))
    counts = {"sections": 0, "frames": 0, "payload": 0}
    try:
        descriptor = read_named_descriptor(path, data)
        row |= {"version": descriptor.version, "id": descriptor.id, "checksum": f"{descriptor.checksum:08x}"}
        row |= {"compression": descriptor.compression, "encryption": descriptor.cipher}
        row["end"] = first_cursor(descriptor).logical
        for section in sections(descriptor, data, keys=keys):
            counts["sections"] += 1
            for frame in frames(section):
                counts["frames"] += 1
                counts["payload"] += len(frame.payload)
                row["end"] = frame.end
    except DecodeError as error:
        yield row | counts | {"damage": str(error)}
        raise
    yield row | counts | {"damage": None}


def _by_section(path: Path, data: SegmentData, keys: Keys) -> Rows:
    for index, section in enumerate(sections(read_named_descriptor(path, data), data, keys=keys)):
        yield {
            "file": path.name,
            "section": index,
            "marker": section.start.marker,
            "size": section.end.marker - section.start.marker,
            "logical": section.logical,
            "uncompressed": len(section.data),
            "frames": sum(1 for _ in frames(section)),
        }


def _by_table(path: Path, data: SegmentData, keys: Keys) -> Rows:
    descriptor = read_named_descriptor(path, data)
    mutations: Counter[UUID] = Counter()
    payload: Counter[UUID] = Counter()
    broken: DecodeError | None = None
    try:
        for section in sections(descriptor, data, keys=keys):
            for frame in frames(section):
                _, table_id = first_table(frame.payload, descriptor.version)
                mutations[table_id] += 1
                payload[table_id] += len(frame.payload)
    except DecodeError as error:
        broken = error
    names = {table.id: str(table) for table in system_tables()}
    for table_id, count in mutations.most_common():
        yield {
            "file": path.name,
            "id": str(table_id),
            "table": names.get(table_id),
            "mutations": count,
            "payload": payload[table_id],
        }
    if broken is not None:
        raise broken


_SHOW: Final[Mapping[Detail, Callable[[Path, SegmentData, Keys], Rows]]] = {
    Detail.SEGMENT: _by_segment,
    Detail.SECTION: _by_section,
    Detail.TABLE: _by_table,
}
