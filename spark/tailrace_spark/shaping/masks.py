"""The pieces of a micro-batch as the settings want them seen ([stream] columns)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tailrace_common.sections.stream import StreamSettings
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.masks import Masks, Rule
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece


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
