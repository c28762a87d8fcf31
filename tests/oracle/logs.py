"""The short way through a change log: out of the sink's records a database is made, which must show what was answered.

The micro-batches come in their order, as to a change-log sink; some come again, to the same process or another, and
some processes die in the middle of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from tailrace_schemas.avro import Encoder
from tailrace_schemas.change import Change
from tailrace_schemas.change_json import ChangeForms
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import Delivered, Piece, RecordId
from tailrace_spark.sinks.protocol import Sink, write_here
from tests.oracle.comparison import Difference, Downstream
from tests.oracle.direct import Recorded, cut, replay
from tests.unit.spark.sinks.change_log_contract import Crash, Outside, as_read, once

TOPIC = "direct"
_AGAIN = 0.25
_DIES = 0.15
_STEPS = 12


def replay_log(recorded: Recorded, outside: Outside, database: Path) -> list[Difference]:
    """How a new SQLite differs that is made of what readers of the change log see."""
    ids: dict[int, bytes] = {}
    tables: dict[str, Table] = {}
    for change in recorded.changes:
        if id(change.table) not in ids:
            made = ids[id(change.table)] = Encoder(change.table, TOPIC).schema_id
            tables[made.hex()] = change.table
    placed = [
        Delivered(RecordId(TOPIC, 0, at, ids[id(change.table)]), as_read(change))
        for at, change in enumerate(recorded.changes)
    ]
    _deliver(outside.open, placed, Random(recorded.seed))
    changes = list(_changes(once(outside.records()), tables))
    told = [Difference(TOPIC, (letter.record_id.offset,), letter.reason) for letter in outside.letters.all]
    if len(changes) != len(placed):
        told.append(Difference(TOPIC, (), f"{len(placed)} changes went in, {len(changes)} came out"))
    with closing(Downstream(f"sqlite:///{database}")) as merged:
        return told + replay(replace(recorded, changes=tuple(changes)), merged)


def _changes(records: Iterable[Mapping[str, Any]], tables: Mapping[str, Table]) -> Iterable[Change]:
    forms = ChangeForms()
    return (forms.of(tables[record["schema"]]).read(record) for record in records)


def _deliver(opened: Callable[..., Sink], placed: Sequence[Delivered], random: Random) -> None:
    """Everything in order, cut anyhow, by sinks of which some die and some have a batch twice."""
    sink = opened()
    try:
        for batch in cut(list(placed), random, 400):
            pieces = [Piece(tuple(piece)) for piece in cut(batch, random, 150)]
            if random.random() < _DIES:
                sink.close()
                with closing(opened(random.randrange(_STEPS))) as dying, suppress(Crash, ServiceError):
                    write_here(dying, pieces)
                sink = opened()
            for _ in range(1 + (random.random() < _AGAIN)):
                write_here(sink, pieces)
    finally:
        sink.close()
