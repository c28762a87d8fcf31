"""`tailrace dump`: the mutations of segment files as JSON lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from tailrace.assembly.schema_file import chosen, definitions_of, definitions_of_cluster
from tailrace.cli.support.options import (
    DAMAGED,
    Key,
    Keystore,
    PasswordFile,
    SegmentFiles,
    SegmentRange,
    Since,
    Until,
    existing_file,
    stretch_of,
)
from tailrace.commitlog.blocks import NO_KEYS, Keys
from tailrace.commitlog.descriptor import Descriptor, SegmentData, parse_name
from tailrace.commitlog.frames import Frame, frames
from tailrace.commitlog.mutation import first_table
from tailrace.commitlog.sections import sections
from tailrace.errors import UnknownTableError
from tailrace.segments.files import open_segment, read_named_descriptor
from tailrace.segments.keys import keys_of, keys_of_settings
from tailrace.segments.printing import PRINTERS, Format, Printer, Shown
from tailrace_common.cli.console import say
from tailrace_common.cli.options import settings_of
from tailrace_common.settings import Settings
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.system_tables import system_tables
from tailrace_schemas.table import Table


@dataclass(slots=True)
class _Dump:
    """One run: what is known and wanted, and what could not be shown so far."""

    printer: Printer
    tables: Mapping[UUID, Table]
    release: str | None
    table_ids: frozenset[UUID] | None
    dropped: bool
    unknown: bool
    keys: Keys
    stretch: SegmentRange
    left_out: dict[str, tuple[int, int]] = field(default_factory=dict)
    damaged: bool = False

    def segment(self, path: Path) -> None:
        """Print one file, up to its end or to where it is damaged."""
        named = parse_name(path.name)
        if named is not None and not self.stretch.touches(named[1]):
            return
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
        since, until = self.stretch.since, self.stretch.until
        for section in sections(descriptor, data, keys=self.keys):
            if (descriptor.id, section.end.logical) <= since:
                continue
            for frame in frames(section):
                mutation_end = (descriptor.id, frame.end)
                if mutation_end > until:
                    return
                if mutation_end > since:
                    _print(self._values(descriptor, frame))

    def _values(self, descriptor: Descriptor, frame: Frame) -> list[object]:
        """What is printed of a frame."""
        try:
            if not self._may_show(frame, descriptor.version):
                return []
            printed = Shown(
                descriptor=descriptor,
                frame=frame,
                tables=self.tables,
                release=self.release,
                table_ids=self.table_ids,
                dropped=self.dropped,
            )
            return list(self.printer.mutation(printed))
        except (UnknownTableError, DecodeError) as error:
            # The frame's checksum was right: a definition is missing or does not fit. The next frame may do.
            if self.unknown:
                location = {"seg": descriptor.id, "pos": frame.end, "size": len(frame.payload)}
                return [{**location, "unknown": str(error), "payload": frame.payload.hex()}]
            position, count = self.left_out.get(str(error), (frame.end, 0))
            self.left_out[str(error)] = position, count + 1
            return []

    def _may_show(self, frame: Frame, version: int) -> bool:
        """Whether anything of it may have been asked for, as far as is seen without decoding."""
        if self.table_ids is None:
            return True
        count, table_id = first_table(frame.payload, version)
        return count > 1 or table_id in self.table_ids


def dump(
    segments: SegmentFiles,
    schema: Annotated[
        Path | None,
        existing_file(
            "Definitions: rows of system_schema as JSON lines, gzip or not. Cassandra's own tables are built in."
        ),
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="Form of the output.")] = Format.RAW,
    table: Annotated[
        list[str] | None,
        typer.Option(metavar="KEYSPACE.TABLE", help="Only updates of this table, or of KEYSPACE.*; repeatable."),
    ] = None,
    dropped: Annotated[
        bool, typer.Option("--dropped", help="Include cells that were written before their column was dropped.")
    ] = False,
    since: Since = None,
    until: Until = None,
    unknown: Annotated[
        bool, typer.Option("--unknown", help="Include mutations without a definition, as bytes.")
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="The settings: without --schema, definitions come from [cluster]; keys come from [agent].",
            show_default=False,
        ),
    ] = None,
    key: Key = None,
    keystore: Keystore = None,
    keystore_password_file: PasswordFile = None,
) -> None:
    """Print the mutations of segment files as JSON lines, or with --format changes the changes that are published.

    Changes: of tables with cdc = true, or those of --table. Mutations without a definition are counted on stderr, and
    printed as bytes only with --unknown. A position is the one after a mutation. Exit code 3 when mutations were left
    out, or a segment is damaged: everything before the damage is printed.

    Example: tailrace dump CommitLog-7-1795246977430.log -c tailrace.toml --table shop.orders
    """
    settings = None if config is None else settings_of(config)
    definitions, release = _definitions(schema, settings)
    table_ids, definitions = chosen(definitions, table)
    own_keys = keys_of(key, keystore, keystore_password_file)
    run = _Dump(
        printer=PRINTERS[output](),
        tables={definition.id: definition for definition in definitions},
        release=release,
        table_ids=table_ids,
        dropped=dropped,
        unknown=unknown,
        stretch=stretch_of(since, until),
        keys=keys_of_settings(settings.agent) if settings is not None and own_keys is NO_KEYS else own_keys,
    )
    for path in segments:
        run.segment(path)
    if run.damaged:
        raise typer.Exit(DAMAGED)


def _definitions(schema: Path | None, settings: Settings | None) -> tuple[tuple[Table, ...], str | None]:
    """The file's definitions, else those of the settings' cluster; built-in ones beside them."""
    if schema is not None or settings is None:
        return definitions_of(schema)
    file = definitions_of_cluster(settings)
    return (*system_tables(), *file.definitions.tables), file.release


def _print(values: Iterable[object]) -> None:
    for value in values:
        sys.stdout.write(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n")
