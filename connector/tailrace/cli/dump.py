"""`tailrace dump`: the mutations of segment files as JSON lines."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final
from uuid import UUID

import typer

from tailrace.cli.console import say
from tailrace.cli.segment_files import DAMAGED, SegmentFiles, open_segment, read_named_descriptor
from tailrace.cli.segment_keys import Key, Keystore, PasswordFile, keys_of
from tailrace.commitlog.descriptor import Descriptor, SegmentData
from tailrace.commitlog.encryption import Keys
from tailrace.commitlog.frames import Frame, frames
from tailrace.commitlog.model import Mutation
from tailrace.commitlog.mutation import decode_mutation, first_table
from tailrace.commitlog.raw import NEVER_32, NEVER_64, raw_mutation
from tailrace.commitlog.sections import sections
from tailrace.errors import UnknownTableError
from tailrace_schemas.definitions import read_schema_file
from tailrace_schemas.errors import DecodeError, SettingsError
from tailrace_schemas.system_tables import system_tables
from tailrace_schemas.table import Table


class Format(StrEnum):
    """What is printed of a mutation."""

    RAW = "raw"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One mutation to print. `release` is the release line that the schema file was written by, if one was given."""

    descriptor: Descriptor
    frame: Frame
    mutation: Mutation
    release: str | None
    dropped: bool


@dataclass(frozen=True, slots=True)
class Printer:
    """How one format prints: JSON values at a file's beginning (its name and size), and for each mutation."""

    file: Callable[[str, int], Iterable[object]]
    mutation: Callable[[Shown], Iterable[object]]


def _raw_file(name: str, size: int) -> Iterable[object]:
    yield {"file": name, "len": size}


def _raw(shown: Shown) -> Iterable[object]:
    # 5.0 writes version 7 too, and only the schema file tells: its reader prints its own constant for "never".
    old = shown.descriptor.version < 8 and shown.release != "5.0"
    # The columns that Cassandra's own tables lost are built in as dropped: 3.11 still had them.
    kept = shown.descriptor.version < 7 and shown.mutation.updates[0].table.keyspace == "system"
    yield raw_mutation(
        shown.mutation,
        segment=shown.descriptor.id,
        end=shown.frame.end,
        size=len(shown.frame.payload),
        never=NEVER_32 if old else NEVER_64,
        dropped=shown.dropped or kept,
    )


PRINTERS: Final[Mapping[Format, Printer]] = {Format.RAW: Printer(_raw_file, _raw)}
"""Every format's printer. A further format is a member of Format and an entry here."""


@dataclass(slots=True)
class _Dump:
    """One run: what is known and wanted, and what could not be shown so far."""

    printer: Printer
    tables: Mapping[UUID, Table]
    release: str | None
    wanted: frozenset[UUID] | None
    dropped: bool
    keys: Keys
    left_out: dict[str, tuple[int, int]] = field(default_factory=dict)
    damaged: bool = False

    def segment(self, path: Path) -> None:
        """Print one file, up to its end or to where it is damaged."""
        self.left_out.clear()
        try:
            with open_segment(path) as data:
                _print(self.printer.file(path.name, len(data)))
                self._mutations(read_named_descriptor(path, data), data)
        except DecodeError as error:
            error.file = path.name
            self.damaged = True
            say(f"{error}; nothing behind it was read")
        for reason, (position, count) in self.left_out.items():
            self.damaged = True
            say(f"{path.name}:{position}: {reason}; {count} mutation{'s' * (count > 1)} left out")

    def _mutations(self, descriptor: Descriptor, data: SegmentData) -> None:
        for section in sections(descriptor, data, keys=self.keys):
            for frame in frames(section):
                try:
                    mutation = self._wanted(frame, descriptor.version)
                except (UnknownTableError, DecodeError) as error:
                    # The frame's checksum was right: a definition is missing or does not fit. The next frame may do.
                    position, count = self.left_out.get(str(error), (frame.end, 0))
                    self.left_out[str(error)] = position, count + 1
                    continue
                if mutation is not None:
                    shown = Shown(
                        descriptor=descriptor,
                        frame=frame,
                        mutation=mutation,
                        release=self.release,
                        dropped=self.dropped,
                    )
                    _print(self.printer.mutation(shown))

    def _wanted(self, frame: Frame, version: int) -> Mutation | None:
        """The frame's mutation without updates that were not asked for; None where nothing is left."""
        if self.wanted is None:
            return decode_mutation(frame.payload, version, self.tables.get)
        count, table_id = first_table(frame.payload, version)
        if count == 1 and table_id not in self.wanted:
            return None
        mutation = decode_mutation(frame.payload, version, self.tables.get)
        updates = tuple(update for update in mutation.updates if update.table.id in self.wanted)
        return replace(mutation, updates=updates) if updates else None


def dump(
    segments: SegmentFiles,
    schema: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Definitions: rows of system_schema as JSON lines. Cassandra's own tables are built in.",
        ),
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="What to print of a mutation.")] = Format.RAW,
    table: Annotated[
        list[str] | None,
        typer.Option(metavar="KEYSPACE.TABLE", help="Only updates of this table, or of KEYSPACE.*; repeatable."),
    ] = None,
    dropped: Annotated[
        bool, typer.Option("--dropped", help="Also cells that were written before their column was dropped.")
    ] = False,
    key: Key = None,
    keystore: Keystore = None,
    keystore_password_file: PasswordFile = None,
) -> None:
    """Print the mutations of segment files, one JSON line each.

    Bytes of tables that no definition explains are not printed; they are counted on stderr. Exit code 3 when mutations
    were left out, or a segment is damaged: everything before the damage is printed.

    Example: tailrace dump CommitLog-7-1795246977430.log --schema schema.jsonl --table shop.orders
    """
    definitions, release = _definitions(schema)
    run = _Dump(
        printer=PRINTERS[output],
        tables={definition.id: definition for definition in definitions},
        release=release,
        wanted=_selected(definitions, table) if table else None,
        dropped=dropped,
        keys=keys_of(key, keystore, keystore_password_file),
    )
    for path in segments:
        run.segment(path)
    if run.damaged:
        raise typer.Exit(DAMAGED)


def _definitions(schema: Path | None) -> tuple[tuple[Table, ...], str | None]:
    """Built-in definitions, then those of the file, which win; and the release line that wrote the file."""
    if schema is None:
        return system_tables(), None
    with schema.open(encoding="utf-8") as lines:
        file = read_schema_file(lines)
    for problem in file.definitions.problems:
        say(f"{schema}: {problem}")
    return (*system_tables(), *file.definitions.tables), file.release


def _selected(definitions: tuple[Table, ...], names: list[str]) -> frozenset[UUID]:
    """The ids of the named tables; raises SettingsError for a name that no definition has."""
    known: dict[str, set[UUID]] = {}
    for definition in definitions:
        known.setdefault(str(definition), set()).add(definition.id)
        known.setdefault(f"{definition.keyspace}.*", set()).add(definition.id)
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        nearest = difflib.get_close_matches(unknown, known, n=1)
        advice = f"did you mean {nearest[0]}?" if nearest else "give its rows with --schema"
        raise SettingsError(f"--table {unknown}: no such table is defined; {advice}")
    return frozenset().union(*(known[name] for name in names))


def _print(values: Iterable[object]) -> None:
    for value in values:
        sys.stdout.write(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")
