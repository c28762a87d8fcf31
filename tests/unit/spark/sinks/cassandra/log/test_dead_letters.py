"""Dead letters of log tables on a cluster in memory: held to their contract, and written again by whole updates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tailrace_schemas.avro import Encoder, SchemaEntry
from tailrace_schemas.digest import change_digest
from tailrace_schemas.position import Position
from tailrace_schemas.ring import Node, Ring
from tailrace_schemas.streams import build_generation
from tailrace_spark.batch.delivery import DeadLetter, Piece, RecordId
from tailrace_spark.job import replay as letters
from tailrace_spark.job.replay import ReplayCounts, all_letters, replay_whole_updates
from tailrace_spark.sinks.cassandra.cluster import Batch
from tailrace_spark.sinks.cassandra.log.sink import LogTablesSink
from tailrace_spark.sinks.protocol import DeadLetterSink
from tailrace_spark.source.decode import pieces
from tailrace_spark.source.table_updates import with_streams
from tailrace_spark.streams.lookup import StreamTable
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.cassandra.log.cluster import ORDERS, Cluster
from tests.unit.spark.sinks.change_log_contract import Crash
from tests.unit.spark.sinks.letters_contract import Lettered, LettersContract, nowhere, understood

STREAMS = StreamTable.of(
    [build_generation(Ring((Node("h", "dc", (-(2**62), 0, 2**62)),)), timestamp=1, seed=1)], known_until=None
)
TOPIC = "t.shop.orders"
ENCODER = Encoder(ORDERS, "t")
SCHEMAS = {
    ENCODER.schema_id: SchemaEntry(schema_id=ENCODER.schema_id, topic=TOPIC, table=ORDERS, avro=ENCODER.schema_text)
}


class _Dying(Cluster):
    """The same cluster, until so many writes were begun or done."""

    def __init__(self, of: Cluster, steps: int) -> None:
        super().__init__(tables=of.tables, rows=of.rows, types=of.types, comments=of.comments)
        self._left = steps

    def write(self, batches: Iterable[Batch]) -> None:
        for batch in list(batches):
            self._step()
            super().write([batch])
            self._step()

    def _step(self) -> None:
        if self._left == 0:
            raise Crash
        self._left -= 1


class Logs:
    """A keyspace of log tables."""

    exactly_once = True

    def __init__(self) -> None:
        self.cluster = Cluster()

    def open(self, dies_after: int | None = None) -> LogTablesSink:
        return LogTablesSink(self.cluster if dies_after is None else _Dying(self.cluster, dies_after), "t")

    def ids(self) -> Sequence[int]:
        rows = self.cluster.rows.get("shop.plain_scylla_cdc_log", {}).values()
        return [int.from_bytes(row["id"], "big") for row in rows]

    def set_format(self, number: int | None) -> None:
        name = "shop.tailrace_log_dead_letters"
        self.cluster.comments[name] = "" if number is None else f"tailrace: format {number}"


class TestLogTables(LettersContract):
    sink = "log-tables"

    @pytest.fixture
    def stores(self) -> Callable[[], Logs]:
        return Logs

    @staticmethod
    def again(
        sink: DeadLetterSink, pieces_of: Callable[[Any], Iterable[Piece]], fetch: letters.Fetch, per_batch: int
    ) -> Iterator[ReplayCounts]:
        updates = sink.capabilities.whole_updates
        assert updates is not None
        return replay_whole_updates(sink, pieces_of, fetch, updates, STREAMS, per_batch)

    def deliver_understood(self, store: Lettered, *some: DeadLetter) -> None:
        with closing(LogTablesSink(store.cluster, "t")) as sink:  # type: ignore[attr-defined]  # it is Logs
            found = understood(letters.records_of(some))
            sink.write([with_streams(one, STREAMS, sink.write_times) for one in found])


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
    store, understand = Logs(), partial(pieces, schemas=SCHEMAS)
    whole, cut, wide = list(update(1, 3, 0)), list(update(2, 3, 3)), list(update(3, 2, 6))
    with closing(store.open()) as sink:
        sink.write([Piece((), (*whole, *cut[1:], *wide))])
        done = sum(replay_whole_updates(sink, understand, nowhere, sink, STREAMS, per_batch=2), ReplayCounts())
        assert done == ReplayCounts(taken=5, again=2)
        assert [one.record_id.offset for one in all_letters(sink)] == [4, 5]
        rows = store.cluster.rows["shop.orders_scylla_cdc_log"].values()
        numbers = sorted((row["id"][-1], row["n"][-1], row["cdc$batch_seq_no"][-1]) for row in rows)
        assert numbers == [(1, 0, 0), (1, 1, 1), (1, 2, 2), (3, 0, 0), (3, 1, 1)]
        sink.write([Piece((), tuple(cut[:1]))])
        done = sum(replay_whole_updates(sink, understand, nowhere, sink, STREAMS, per_batch=2), ReplayCounts())
        assert done == ReplayCounts(taken=3)
        assert list(all_letters(sink)) == []
        assert len(store.cluster.rows["shop.orders_scylla_cdc_log"]) == 8
