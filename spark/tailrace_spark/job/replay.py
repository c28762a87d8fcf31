"""Replay: dead letters of a sink are written into it again, and removed where it has not put them again.

A replay that dies in between writes them once more. Merging them again changes nothing; in a log both copies of a
change have one place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa

from tailrace_common.kafka import RecordFetcher
from tailrace_common.settings import Settings
from tailrace_common.topics import GenerationReader, SchemaReader
from tailrace_schemas.change import TRUNCATED_LATE, Op
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.topics import Internal, internal_topic
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, RecordId
from tailrace_spark.job.batch_records import shaped
from tailrace_spark.job.snapshot_context import read_back_of
from tailrace_spark.shaping import shape_of
from tailrace_spark.sinks.letters import LetterBox, LetterReader, LetterTopic
from tailrace_spark.sinks.protocol import AGAIN, Sink, follow, follows_none, write_here
from tailrace_spark.sinks.registry import sink_of
from tailrace_spark.snapshot.read_back import ReadBack
from tailrace_spark.source.decode import pieces
from tailrace_spark.source.table_updates import OpenUpdate, with_streams
from tailrace_spark.streams.assign import SNAPSHOT_MARK
from tailrace_spark.streams.lookup import StreamTable
from tailrace_spark.tasks.partition_writer import RECORDS

LETTERS_PER_BATCH: Final = 500

Fetch = Callable[[RecordId], bytes | None]
"""The value of the record at a place; None where there is none any more."""


@dataclass(frozen=True, slots=True)
class ReplayCounts:
    """Counts of letters: taken in, set aside again, or left, since their bytes are nowhere any more."""

    taken: int = 0
    again: int = 0
    left: int = 0

    def __add__(self, other: ReplayCounts) -> ReplayCounts:
        return ReplayCounts(self.taken + other.taken, self.again + other.again, self.left + other.left)


def box_of(settings: Settings, name: str) -> LetterReader:
    """The dead letters of a sink. Raises SettingsError where there is none of the name."""
    if name not in settings.sink:
        raise SettingsError(f"there is no [sink.{name}]; set: {', '.join(settings.sink) or 'none'}")
    return LetterReader(LetterTopic.of(settings, name))


def replay_sink(name: str, settings: Settings) -> Iterator[ReplayCounts]:
    """Write every letter of a sink of these settings again, in this process; what became of each part, once committed.

    A stream may write meanwhile. Raises SettingsError where there is no sink of the name, ServiceError where Kafka or
    the store does not answer.
    """
    with (
        box_of(settings, name) as box,
        closing(sink_of(settings, name)) as sink,
        SchemaReader(settings.kafka.reveal(), settings.topics.prefix, ordered=True) as schemas,
        RecordFetcher(settings.kafka.reveal()) as records,
    ):
        sink.reach()
        follow(sink, follows_none)  # what waits is its stream's to write, by its filters
        decoded = partial(pieces, schemas=schemas, early=settings.stream.accept_early)
        shape, read_back = shape_of(settings.stream, sink), _read_back(settings, sink, schemas)

        def fetch(record_id: RecordId) -> bytes | None:
            return records.value(*record_id.key)

        table = None if sink.capabilities.whole_updates is None else _streams(settings)
        yield from replay_letters(box, sink, lambda letters: shaped(decoded(letters), read_back, shape), fetch, table)


def _read_back(settings: Settings, sink: Sink, schemas: SchemaReader) -> ReadBack | None:
    """What reads rows back that letters leave open. Of which tables the stream has read rows is not known here."""
    if settings.stream.snapshot == "never":
        return None
    schemas.refresh()
    return read_back_of(settings, sink, frozenset(str(entry.table) for entry in schemas.values()))


def _streams(settings: Settings) -> StreamTable:
    """The generations up to now. Raises ServiceError where none is published."""
    topic = internal_topic(settings.topics.prefix, Internal.GENERATIONS)
    with GenerationReader.open(settings.kafka.reveal(), topic) as reader:
        return StreamTable.of_published(reader.refresh_some(), reader.known_until)


def all_letters(box: LetterBox) -> Iterator[DeadLetter]:
    """Every letter, by topic, partition and offset."""
    for letters in _letter_batches(box):
        yield from letters


def remove_letters(box: LetterBox) -> int:
    """Remove all that are there by now, whatever becomes of their records; how many."""
    return sum(box.remove(letters) for letters in _letter_batches(box))


def replay_letters(
    box: LetterBox,
    sink: Sink,
    pieces_of: Callable[[Any], Iterable[Piece]],
    fetch: Fetch,
    table: StreamTable | None = None,
    per_batch: int = LETTERS_PER_BATCH,
) -> Iterator[ReplayCounts]:
    """Write every letter again, `per_batch` at a time; what became of each part, when it is committed.

    `pieces_of` makes pieces of records, a pyarrow Table (`source.decode`). `fetch` reads the bytes of one that
    was set aside without. `table` gives streams to the table updates of a sink that needs these whole. An update goes
    with the last of its letters. One of which not all changes are letters stays: its rows count on from those that are
    missing. A stream may write meanwhile.

    A truncation comes behind changes that were written since it was set aside. So it erases by write times, and the
    positions of its host tell of the other letters.
    """
    updates = sink.capabilities.whole_updates
    open_updates: dict[object, _Update] = {}
    for batch in _letter_batches(box, per_batch):
        readable = [letter for letter in _with_bytes(batch, fetch) if letter.message]
        done = readable
        again: Iterable[Piece] = map(_late, pieces_of(records_of(readable)))
        if updates is not None and table is not None:
            done, whole = _whole(readable, again, open_updates)
            again = [with_streams(whole, table, updates.write_times)]
        if done:
            write_here(sink, again, AGAIN)
        written = box.remove(done) if done else 0
        yield ReplayCounts(taken=written, again=len(done) - written, left=len(batch) - len(readable))
    if open_updates:
        yield ReplayCounts(again=sum(len(update.letters) for update in open_updates.values()))


def _late(piece: Piece) -> Piece:
    """With truncations that say of themselves what is true here: changes behind them may have come before them."""
    return replace(piece, changes=tuple(map(_late_truncation, piece.changes)))


def _late_truncation(delivered: Delivered) -> Delivered:
    change, source = delivered.change, delivered.change.source
    if change.op is not Op.TRUNCATE or source is None:
        return delivered
    late = replace(source, flags=source.flags | TRUNCATED_LATE)
    return replace(delivered, change=replace(change, source=late))


@dataclass(slots=True)
class _Update:
    """An update some of whose changes are letters that were met."""

    parts: OpenUpdate = field(default_factory=OpenUpdate)
    letters: list[DeadLetter] = field(default_factory=list)


def _whole(
    letters: Sequence[DeadLetter], read: Iterable[Piece], open_updates: dict[object, _Update]
) -> tuple[list[DeadLetter], Piece]:
    """The letters that are done with, and the changes of updates that are whole by now, with what is refused again."""
    by_record = {letter.record_id.key: letter for letter in letters}
    done: list[DeadLetter] = []
    changes: list[Delivered] = []
    refused: list[DeadLetter] = []
    for piece in read:
        for letter in piece.dead_letters:
            refused.append(letter)
            done.append(by_record[letter.record_id.key])
        for delivered in piece.changes:
            update = open_updates.setdefault(delivered.update, _Update())
            update.letters.append(by_record[delivered.record_id.key])
            update.parts.add(delivered)
            if update.parts.whole:
                done += update.letters
                changes += open_updates.pop(delivered.update).parts.in_order()
    return done, Piece(tuple(changes), tuple(refused))


def _with_bytes(letters: Sequence[DeadLetter], fetch: Fetch) -> list[DeadLetter]:
    return [
        letter if letter.message else replace(letter, message=fetch(_in_kafka(letter.record_id)) or b"")
        for letter in letters
    ]


def _in_kafka(record_id: RecordId) -> RecordId:
    """The place in Kafka of a record that a later reading has under a place of its own (source.readings)."""
    return replace(record_id, topic=record_id.topic.partition(SNAPSHOT_MARK)[0])


def _letter_batches(box: LetterBox, per_batch: int = LETTERS_PER_BATCH) -> Iterator[Sequence[DeadLetter]]:
    last_record = None
    while letters := box.list(last_record, per_batch):
        yield letters
        last_record = letters[-1].record_id


def records_of(letters: Sequence[DeadLetter]) -> pa.Table:
    """The records that letters were made of, as tailrace_spark.source.decode has them, without streams."""
    rows = [(*letter.record_id.key, letter.message) for letter in letters]
    return pa.Table.from_pylist([dict(zip(RECORDS.names, row, strict=False)) for row in rows], schema=RECORDS)
