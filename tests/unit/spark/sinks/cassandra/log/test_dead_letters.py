"""Dead letters of log tables on a cluster in memory: written again by whole updates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest

from tailrace_schemas.avro import Encoder
from tailrace_schemas.digest import change_digest
from tailrace_schemas.position import Position
from tailrace_schemas.ring import Node, Ring
from tailrace_schemas.streams import build_generation
from tailrace_spark.batch.delivery import DeadLetter, Piece, RecordId
from tailrace_spark.job.replay import ReplayCounts, replay_letters
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.source.decode import pieces
from tailrace_spark.streams.lookup import StreamTable
from tests.support.letters import MemoryLetters
from tests.unit.spark.cassandra import Log
from tests.unit.spark.published import schemas_of
from tests.unit.spark.sinks.cassandra.log.cluster import ORDERS, Cluster

STREAMS = StreamTable.of(
    [build_generation(Ring((Node("h", "dc", (-(2**62), 0, 2**62)),)), timestamp=1, seed=1)], known_until=None
)
TOPIC = "t.shop.orders"
ENCODER = Encoder(ORDERS, "t")
SCHEMAS = schemas_of(ENCODER, TOPIC)


def update(number: int, rows: int, first: int) -> Iterator[DeadLetter]:
    """The letters of one mutation of so many rows, from an offset on."""
    for index in range(rows):
        change = Log(ORDERS).insert((number,), (index,), 10 + number, v="x")
        assert change.source is not None
        source = replace(change.source, position=Position(1, 5, 1_000 + number), index=index, count=rows)
        change = replace(change, source=source)
        change = replace(change, digest=change_digest(change))
        place = RecordId(TOPIC, 0, first + index, ENCODER.schema_id)
        yield DeadLetter(place, "what schema?", ENCODER.value(change))


@pytest.mark.promise("sinks.dead-letters")
def test_an_update_is_written_with_all_of_its_changes_wherever_a_part_of_the_letters_ends() -> None:
    """One that lacks a change stays: its rows would be numbered as if there were none before them."""
    cluster, letters, understand = Cluster(), MemoryLetters(), partial(pieces, schemas=SCHEMAS)
    whole, cut, wide = list(update(1, 3, 0)), list(update(2, 3, 3)), list(update(3, 2, 6))
    with closing(cluster.sink(letters)) as sink:

        def replayed() -> ReplayCounts:
            done = replay_letters(letters, sink, understand, lambda _: None, STREAMS, per_batch=2)
            return sum(done, ReplayCounts())

        write_here(sink, [Piece((), (*whole, *cut[1:], *wide))])
        done = replayed()
        assert done == ReplayCounts(taken=5, again=2)
        assert [one.record_id.offset for one in letters.all] == [4, 5]
        rows = cluster.rows["shop.orders_scylla_cdc_log"].values()
        numbers = sorted((row["id"][-1], row["n"][-1], row["cdc$batch_seq_no"][-1]) for row in rows)
        assert numbers == [(1, 0, 0), (1, 1, 1), (1, 2, 2), (3, 0, 0), (3, 1, 1)]
        write_here(sink, [Piece((), tuple(cut[:1]))])
        done = replayed()
        assert done == ReplayCounts(taken=3)
        assert letters.all == []
        assert len(cluster.rows["shop.orders_scylla_cdc_log"]) == 8
