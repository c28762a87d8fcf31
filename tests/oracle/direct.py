"""The short way: a program's changes, decoded from the node's own segments, into a sink in any order and cut."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from uuid import UUID

from tailrace.commitlog.model import Mutation
from tailrace.commitlog.mutation import decode_mutation
from tailrace.schema.truncations import truncations_in
from tailrace_schemas.change import Change, Deletion, Op, Source
from tailrace_schemas.digest import change_digest
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import Delivered, Piece, RecordId
from tailrace_spark.sinks.protocol import SweepingSink, write_here
from tests.corpus.corpus import logged_in
from tests.oracle.comparison import Answer, Difference, Followed, differences
from tests.oracle.split import changes_of

_TOPIC = "direct"


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the log and SELECT say of a program that was written from `began` on, and done when it was `asked`: seconds
    since the epoch, and nothing expired shortly before."""

    seed: int
    changes: tuple[Change, ...]
    answers: tuple[Answer, ...]
    began: float
    asked: float


def changes_by_keyspace(
    segments: Iterable[Path], tables: Mapping[UUID, Table], local: Table | None = None
) -> dict[str, list[Change]]:
    """The changes of these tables with cdc = true, in the order of the log, by their newest definitions.

    Truncations among them where `local`, the definition of system.local, is given.
    """
    found: dict[str, list[Change]] = defaultdict(list)
    known = tables if local is None else {**tables, local.id: local}
    for path in segments:
        data = path.read_bytes()
        if not any(data[:8]):  # allocated, not begun
            continue
        for logged in logged_in(data, known):
            mutation = decode_mutation(logged.payload, logged.version, known.get)
            for change in changes_of(mutation, logged.source, lambda table: table.cdc):
                found[change.table.keyspace].append(change)
            for truncation in _truncations(mutation, logged.source, tables):
                found[truncation.table.keyspace].append(truncation)
    return found


def _truncations(mutation: Mutation, source: Source, tables: Mapping[UUID, Table]) -> Iterator[Change]:
    for one in truncations_in(mutation, source.position):
        table = tables.get(one.table_id)
        if table is not None and table.cdc:
            deletion = Deletion(one.written, one.written // 1_000_000)
            alone = replace(source, count=1)
            change = Change(
                op=Op.TRUNCATE,
                table=table,
                token=0,
                key=None,
                deletion=deletion,
                source=alone,
                upto=one.effective_position,
            )
            yield replace(change, digest=change_digest(change))


def replay(recorded: Recorded, store: Followed) -> list[Difference]:
    """How a new store differs that the short way leads to; its clock goes on as the program's did."""
    clock = _Clock(recorded.began)
    with closing(store.open(clock.read)) as sink:
        deliver(sink, recorded.changes, Random(recorded.seed), clock, recorded.asked)
    return [
        *differences(recorded.answers, store),
        *(Difference(topic, (), reason) for topic, reason in store.set_aside()),
    ]


class _Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def read(self) -> float:
        return self.now


def deliver(sink: SweepingSink, changes: Iterable[Change], random: Random, clock: _Clock, until: float) -> None:
    """Write the changes in a random order, a part of them twice, in micro-batches and pieces of any size, while the
    clock goes on; at the end what has expired is swept.

    What a truncation left comes after it, as in a topic; what it took comes whenever it likes."""
    shuffled = [Delivered(RecordId(_TOPIC, 0, at), change) for at, change in enumerate(changes)]
    shuffled += random.sample(shuffled, len(shuffled) // 4)
    shuffled = in_any_order(shuffled, random)
    batches = list(cut(shuffled, random, 400))
    step = (until - clock.now) / (len(batches) + 1)
    for batch in batches:
        write_here(sink, [Piece(tuple(piece)) for piece in cut(batch, random, 150)])
        clock.now += step
    clock.now = until
    sink.sweep()


def in_any_order(arriving: list[Delivered], random: Random) -> list[Delivered]:
    """In a random order in which each change, and each truncation, follows the truncations that left it."""
    truncations: dict[UUID, list[tuple[Position, float]]] = defaultdict(list)
    timed: list[tuple[float, int, Delivered]] = []
    in_log_order = sorted(arriving, key=_place)
    for index, one in enumerate(in_log_order):
        earlier = [time for upto, time in truncations[one.change.table.id] if upto < _place(one)]
        after = max(earlier, default=0.0)
        time = after + (1 - after) * random.random()
        if one.change.op is Op.TRUNCATE:
            truncations[one.change.table.id].append((_place(one), time))
        timed.append((time, index, one))
    return [one for *_, one in sorted(timed, key=lambda entry: entry[:2])]


def _place(one: Delivered) -> Position:
    change = one.change
    if change.source is None:
        raise ValueError(f"{change.table}: a change without a source")
    return change.source.position if change.upto is None else change.upto


def cut(parts: list[Delivered], random: Random, most: int) -> Iterator[list[Delivered]]:
    """Parts of it, of one to `most` each."""
    at = 0
    while at < len(parts):
        size = random.choice((1, 5, most // 4, most))
        yield parts[at : at + size]
        at += size
