"""What `tailrace dump` prints of a mutation: what Cassandra's own reader sees, or the changes that are published."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Protocol
from uuid import UUID

from tailrace.changes.transcode import Transcoder
from tailrace.commitlog.descriptor import Descriptor
from tailrace.commitlog.frames import Frame
from tailrace.commitlog.mutation import decode_mutation
from tailrace.commitlog.raw import NEVER_32, NEVER_64, raw_mutation
from tailrace_schemas.change import Source
from tailrace_schemas.change_json import UNNAMED, ChangeForms
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table

_IN_THE_FILE: Final = ("segment", "offset", "index", "count")


class Format(StrEnum):
    """What is printed of a mutation."""

    RAW = "raw"
    CHANGES = "changes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One mutation to print, by these definitions.

    `release` is the release line that the schema file was written by, if one was given. `table_ids` are those of the
    tables that were asked for, None for all.
    """

    descriptor: Descriptor
    frame: Frame
    tables: Mapping[UUID, Table]
    release: str | None
    table_ids: frozenset[UUID] | None
    dropped: bool


class Printer(Protocol):
    """How one format prints: JSON values at a file's beginning (its name and size), and for each mutation."""

    def file(self, name: str, size: int) -> Iterable[object]: ...

    def mutation(self, printed: Shown) -> Iterable[object]: ...


class RawPrinter:
    """One value per mutation, in the shape of docs/raw-dump.md; updates that were not asked for are left out."""

    def file(self, name: str, size: int) -> Iterable[object]:
        yield {"file": name, "len": size}

    def mutation(self, printed: Shown) -> Iterable[object]:
        payload, version = printed.frame.payload, printed.descriptor.version
        mutation = decode_mutation(payload, version, printed.tables.get)
        if printed.table_ids is not None:
            updates = tuple(update for update in mutation.updates if update.table.id in printed.table_ids)
            if not updates:
                return
            mutation = replace(mutation, updates=updates)
        # 5.0 writes version 7 too, and only the schema file tells: its reader prints its own constant for "never".
        old = version < 8 and printed.release != "5.0"
        # The columns that Cassandra's own tables lost are built in as dropped: 3.11 still had them.
        dropped_later = version < 7 and mutation.updates[0].table.keyspace == "system"
        yield raw_mutation(
            mutation,
            segment=printed.descriptor.id,
            end=printed.frame.end,
            size=len(payload),
            never=NEVER_32 if old else NEVER_64,
            dropped=printed.dropped or dropped_later,
        )


class ChangesPrinter:
    """One value per change: the record that is published (docs/contracts.md 3), with its table's name in front.

    Of tables with cdc = true, made and numbered as an agent does. Bytes are hexadecimal; of the source there is what
    stands in the file.
    """

    def __init__(self) -> None:
        self._transcoder = Transcoder(UNNAMED)
        self._forms = ChangeForms()

    def file(self, name: str, size: int) -> Iterable[object]:  # noqa: ARG002 - every line says its segment itself
        return ()

    def mutation(self, printed: Shown) -> Iterable[object]:
        segment, frame = printed.descriptor, printed.frame
        position = Position(0, segment.id, frame.end)
        return self.changes(frame.payload, segment.version, printed.tables, position, printed.table_ids)

    def changes(
        self,
        payload: bytes,
        version: int,
        tables: Mapping[UUID, Table],
        position: Position,
        table_ids: frozenset[UUID] | None,
    ) -> Iterator[dict[str, object]]:
        """The values of the mutation that ends at a position; `table_ids` as in Shown."""
        source = Source("", "", position, 0, 0)
        for message in self._transcoder.messages(payload, version, lambda id: tables.get(UUID(bytes=id)), source):
            if table_ids is None or message.table.id in table_ids:
                yield _in_file(self._forms.of(message.table).write_message(message.value))


def _in_file(value: dict[str, object]) -> dict[str, object]:
    source = value["source"]
    return {**value, "source": {name: source[name] for name in _IN_THE_FILE} if isinstance(source, dict) else None}


PRINTERS: Final[Mapping[Format, Callable[[], Printer]]] = {Format.RAW: RawPrinter, Format.CHANGES: ChangesPrinter}
"""Every format's printer. A further format is a member of Format and an entry here."""
