"""The shape of a stream's changes: filters first, by the columns as they were written, then masks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from tailrace_common.sections.stream import StreamSettings
from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.masks import Masks, Rule
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece
from tailrace_spark.merge.condition import RowFilters, predicate_of
from tailrace_spark.shaping.change_filters import SETTING, Filters
from tailrace_spark.shaping.conditions import split_conditions
from tailrace_spark.sinks.protocol import Sink

log = logging.getLogger("tailrace_spark")

NO_WHOLE_ROWS: Final = (
    "{} asks for row.NAME, a column outside the key, which takes whole rows: this sink knows only what a change "
    "writes. Sinks of the types sql and opensearch know them, delta and iceberg with "
    'mode = "current", and change logs with images'
)
"""What is wrong where the sink cannot be asked for rows; with the setting."""
_NOTHING: Final[Mapping[str, int]] = {}

Complete = Callable[[Iterable[Piece]], Iterable[Piece]]


class Shape:
    """Filters and masks of one stream, either of which may be missing."""

    def __init__(self, filters: Filters | None, masks: Masks | None, rows: RowFilters = ()) -> None:
        """`rows`: what the sink asks of rows."""
        self._rows = rows
        self._filters = filters
        self._masks = masks

    def check(self, tables: Iterable[tuple[int, Table]]) -> None:
        """Raise SettingsError where a table that is known does not fit the settings.

        Tables come with the place at which their definitions were announced (Delivered). One that appears later, and
        does not fit, goes to the dead letters; it holds up no other.
        """
        for announced, table in tables:
            if self._filters is not None:
                self._filters.check(table, announced)
            if self._masks is not None:
                self._masks.check(table)
            predicate_of(self._rows, table if self._masks is None else self._masks.table(table))

    def begin(self, tables: Sequence[tuple[int, Table]]) -> None:
        """As `check`, of all tables that a stream knows at its start; logs a warning of each rule that matches none."""
        self.check(tables)
        definitions = [table for _, table in tables]
        for pattern in () if self._filters is None else self._filters.unmatched(definitions):
            log.warning('%s "%s" matches no table yet: it is checked when one appears', SETTING, pattern)
        for pattern in () if self._masks is None else self._masks.unmatched(definitions):
            log.warning(
                'stream.columns "%s" matches no column yet. Check the spelling: what no rule matches is not masked',
                pattern,
            )

    def shaped(self, pieces: Iterable[Piece], completed: Complete | None = None) -> Iterator[Piece]:
        """The pieces as the sink is to see them; `completed` adds to what passes the filters what that leaves open."""
        filtered = pieces if self._filters is None else self._filters.filtered(pieces)
        complete = filtered if completed is None else completed(filtered)
        yield from complete if self._masks is None else masked(complete, self._masks)

    @property
    def task_filters(self) -> partial[Filters] | None:
        """What makes the filters in a task; None without any."""
        return (
            None if self._filters is None else partial(Filters, self._filters.conditions, written=self._filters.written)
        )

    def definition(self, table: Table) -> Table | None:
        """The definition that shaped changes of a table have; None for a table that does not fit the masks."""
        try:
            return table if self._masks is None else self._masks.table(table)
        except SettingsError:
            return None  # its changes are dead letters

    @property
    def left_out(self) -> Mapping[str, int]:
        """Counts of the changes that filters left out of the last batch, by "keyspace.table"."""
        return _NOTHING if self._filters is None else self._filters.left_out


def newest(entries: Iterable[SchemaEntry]) -> list[tuple[int, Table]]:
    """Each table's newest definition, by name, with the place at which it was announced."""
    return [(entry.announced, entry.table) for entry in newest_entries(entries)]


def newest_entries(entries: Iterable[SchemaEntry]) -> list[SchemaEntry]:
    """Those of each table's newest definition, by name."""
    definitions: dict[str, SchemaEntry] = {}
    for entry in entries:
        existing = definitions.get(str(entry.table))
        if entry.part == "value" and (existing is None or existing.announced < entry.announced):
            definitions[str(entry.table)] = entry
    return list(definitions.values())


def shape_of(settings: StreamSettings, sink: Sink) -> Shape | None:
    """The filters and masks of the settings; None without any.

    Filters, `stream.where`, may ask for what a change writes where the sink keeps a log of changes, and makes no rows
    of them. What they ask of rows goes to the sink. Raises SettingsError.
    """
    masks, (rows, conditions) = masks_of(settings), split_conditions(settings.where, SETTING)
    if rows:
        filtering = sink.capabilities.filtering
        if filtering is None:
            raise SettingsError(NO_WHOLE_ROWS.format(SETTING))
        filtering.filter_rows(rows)
    if masks is None and not rows and not conditions:
        return None
    written = sink.capabilities.logs_changes
    return Shape(Filters(conditions, written=written) if conditions else None, masks, rows)


def masks_of(settings: StreamSettings) -> Masks | None:
    """The masks of the settings; None without any."""
    if not settings.columns:
        return None
    rules = [Rule.parse(pattern, text) for pattern, text in settings.columns.items()]
    secret = settings.hash_key.get_secret_value() if settings.hash_key is not None else ""
    return Masks(rules, secret.encode())


def masked(pieces: Iterable[Piece], masks: Masks) -> Iterator[Piece]:
    """The same pieces, each change masked, without those of which nothing is left; none has its record's bytes.

    What was not decoded cannot be masked, and of what was, dead letters would tell all. Changes of a table that the
    masks do not fit are dead letters.
    """
    for piece in pieces:
        letters = [replace(letter, message=b"") for letter in piece.dead_letters]
        changes = tuple(_masked_changes(piece.changes, masks, letters))
        yield Piece(changes, tuple(letters))


def _masked_changes(changes: Iterable[Delivered], masks: Masks, letters: list[DeadLetter]) -> Iterator[Delivered]:
    for delivered in changes:
        try:
            change = masks.change(delivered.change)
        except SettingsError as error:
            letters.append(DeadLetter(delivered.record_id, str(error)))
            continue
        if change is not None:
            yield replace(delivered, change=change, message=b"")
