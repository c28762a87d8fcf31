"""The short way: a program's changes, decoded from the node's own segments, into a sink in any order and cut."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from random import Random
from uuid import UUID

from tailrace.changes.split import changes_of
from tailrace.commitlog.mutation import decode_mutation
from tailrace_schemas.change import Change
from tailrace_schemas.table import Table
from tailrace_spark.sinks.protocol import Delivered, Piece, Place, SweepingSink
from tests.corpus.corpus import logged_in


def changes_by_keyspace(segments: Iterable[Path], tables: Mapping[UUID, Table]) -> dict[str, list[Change]]:
    """The changes of these tables with cdc = true, in the order of the log, by their newest definitions."""
    found: dict[str, list[Change]] = defaultdict(list)
    for path in segments:
        data = path.read_bytes()
        if not any(data[:8]):  # allocated, not begun
            continue
        for logged in logged_in(data, tables):
            mutation = decode_mutation(logged.payload, logged.version, tables.get)
            for change in changes_of(mutation, logged.source, lambda table: table.cdc):
                found[change.table.keyspace].append(change)
    return found


def deliver(sink: SweepingSink, changes: Iterable[Change], random: Random) -> int:
    """Write the changes in a random order, a part of them twice, in micro-batches and pieces of any size.

    How many were written, and dead letters subtracted: none should be.
    """
    shuffled = [Delivered(Place("direct", 0, at), change) for at, change in enumerate(changes)]
    shuffled += random.sample(shuffled, len(shuffled) // 4)
    random.shuffle(shuffled)
    dead = 0
    for batch in _cut(shuffled, random, 400):
        dead += sink.write([Piece(tuple(piece)) for piece in _cut(batch, random, 150)]).dead_letters
    sink.sweep()
    return len(shuffled) - dead


def _cut(parts: list[Delivered], random: Random, most: int) -> Iterator[list[Delivered]]:
    at = 0
    while at < len(parts):
        size = random.choice((1, 5, most // 4, most))
        yield parts[at : at + size]
        at += size
