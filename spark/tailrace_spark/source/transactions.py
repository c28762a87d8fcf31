"""Marks the changes of whole updates with their transaction, for sinks that deliver those of a mutation together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tailrace_schemas.change import Op, Origin
from tailrace_schemas.digest import mutation_digest
from tailrace_spark.batch.delivery import Delivered, Piece, Transaction


def with_transactions(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """The pieces of `table_updates`, in which updates stand whole, each change with its transaction.

    Truncations, rows of a snapshot, and what has no source have none.
    """
    for piece in pieces:
        changes = [marked for update in _updates_of(piece.changes) for marked in _marked(update)]
        yield replace(piece, changes=tuple(changes))


def _updates_of(changes: Iterable[Delivered]) -> Iterator[list[Delivered]]:
    """The changes in runs of one update. One that was published twice is two: its indexes begin again."""
    update: list[Delivered] = []
    for delivered in changes:
        if update and not _goes_on(update[-1], delivered):
            yield update
            update = []
        update.append(delivered)
    if update:
        yield update


def _goes_on(last: Delivered, delivered: Delivered) -> bool:
    one_source, source = last.change.source, delivered.change.source
    if one_source is None or source is None or source.index <= one_source.index:
        return False
    return _mutation(last) == _mutation(delivered)


def _mutation(delivered: Delivered) -> tuple[object, ...]:
    record_id, source = delivered.record_id, delivered.change.source
    if source is None:
        return record_id.key
    return record_id.topic, record_id.partition, source.host, source.position, source.origin


def _marked(update: Sequence[Delivered]) -> Iterator[Delivered]:
    first, last = update[0].change.source, update[-1].change.source
    if first is None or last is None or update[0].change.op is Op.TRUNCATE or first.origin is Origin.SNAPSHOT:
        yield from update
        return
    count = last.index - first.index + 1
    is_whole = first.begins_update and last.ends_update and len(update) == count
    digest = mutation_digest(delivered.change.digest for delivered in update)
    begins = min(delivered.record_id.offset for delivered in update)
    for delivered in update:
        source = delivered.change.source
        if source is not None:
            index, ends = source.index - first.index, delivered is update[-1]
            transaction = Transaction(digest, index, count if is_whole else None, begins, ends)
            yield replace(delivered, transaction=transaction)
