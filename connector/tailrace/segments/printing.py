"""What `tailrace dump` prints of a mutation: what Cassandra's own reader sees, or the changes that are published."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Protocol
from uuid import UUID

from tailrace.changes.split import changes_of
from tailrace.commitlog.descriptor import Descriptor
from tailrace.commitlog.frames import Frame
from tailrace.commitlog.model import Mutation
from tailrace.commitlog.raw import NEVER_32, NEVER_64, raw_mutation
from tailrace_schemas.change import Change, Source
from tailrace_schemas.change_json import ChangeForms
from tailrace_schemas.position import Position

_IN_THE_FILE: Final = ("segment", "offset", "index", "count")


class Format(StrEnum):
    """What is printed of a mutation."""

    RAW = "raw"
    CHANGES = "changes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One mutation to print. `release` is the release line that the schema file was written by, if one was given.

    `wanted` are the ids of the tables that were asked for, None for all.
    """

    descriptor: Descriptor
    frame: Frame
    mutation: Mutation
    release: str | None
    wanted: frozenset[UUID] | None
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
        mutation = printed.mutation
        if printed.wanted is not None:
            updates = tuple(update for update in mutation.updates if update.table.id in printed.wanted)
            if not updates:
                return
            mutation = replace(mutation, updates=updates)
        # 5.0 writes version 7 too, and only the schema file tells: its reader prints its own constant for "never".
        old = printed.descriptor.version < 8 and printed.release != "5.0"
        # The columns that Cassandra's own tables lost are built in as dropped: 3.11 still had them.
        dropped_later = printed.descriptor.version < 7 and mutation.updates[0].table.keyspace == "system"
        yield raw_mutation(
            mutation,
            segment=printed.descriptor.id,
            end=printed.frame.end,
            size=len(printed.frame.payload),
            never=NEVER_32 if old else NEVER_64,
            dropped=printed.dropped or dropped_later,
        )


class ChangesPrinter:
    """One value per change: the record that is published (docs/contracts.md 3), with its table's name in front.

    Of tables with cdc = true, numbered as an agent numbers them, and of those that were asked for by name. Bytes are
    hexadecimal; of the source there is what stands in the file.
    """

    def __init__(self) -> None:
        self._forms = ChangeForms()

    def file(self, name: str, size: int) -> Iterable[object]:  # noqa: ARG002 - every line says its segment itself
        return ()

    def mutation(self, printed: Shown) -> Iterable[object]:
        return self.changes(printed.mutation, printed.descriptor.id, printed.frame.end, printed.wanted)

    def changes(
        self, mutation: Mutation, segment: int, end: int, table_ids: frozenset[UUID] | None
    ) -> Iterator[dict[str, object]]:
        """The values of the mutation that ends at the logical position `end`; `table_ids` as `wanted` in Shown."""
        source = Source("", "", Position(0, segment, end), 0, 0)
        for change in changes_of(mutation, source, lambda table: table.cdc or table.id in (table_ids or ())):
            if table_ids is None or change.table.id in table_ids:
                yield self._line(change)

    def _line(self, change: Change) -> dict[str, object]:
        value = self._forms.of(change.table).write(change)
        source = value["source"]
        value["source"] = {name: source[name] for name in _IN_THE_FILE} if isinstance(source, dict) else None
        return value


PRINTERS: Final[Mapping[Format, Callable[[], Printer]]] = {Format.RAW: RawPrinter, Format.CHANGES: ChangesPrinter}
"""Every format's printer. A further format is a member of Format and an entry here."""
