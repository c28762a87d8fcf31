"""Tasks are given the places of a reading, and their driver those of Kafka."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tailrace_spark.batch.delivery import MicroBatch, Piece
from tailrace_spark.sinks.files.outlet import FilesSink
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.source.readings import EVERY, of_readings
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import PLAIN, Topic, delivered_by, place_of
from tests.unit.spark.sinks.files.stores import local
from tests.unit.spark.sinks.in_tasks import LogInTasks
from tests.unit.spark.sinks.planned import Planned


def piece(topic: str) -> Piece:
    log = Log(PLAIN)
    return Topic(topic).piece(*(log.insert((number,), (), number, v="x") for number in range(4)))


@pytest.mark.promise("sinks.read-again")
def test_tasks_write_each_reading_once(tmp_path: Path) -> None:
    """A topic may have a reading of its own, and rows of a snapshot have places that none had before."""
    stored, read = local(tmp_path), [piece("t.shop.plain"), piece("t.shop.other"), piece("t.shop.plain@snapshot")]
    for readings in ({}, {EVERY: "one"}, {EVERY: "one"}, {EVERY: "one", "t.shop.plain": "of it"}):
        with closing(FilesSink(stored.outlet())) as sink:
            write_here(LogInTasks(of_readings(sink, readings)), read)
    topics = ["t.shop.plain", "t.shop.other"]
    expected = {(name, *place[1:]) for place in delivered_by(read[0]) for name in [
        *topics, *(f"{topic}@one" for topic in topics), "t.shop.plain@of it", "t.shop.plain@snapshot",
    ]}  # fmt: skip
    places = [place_of(record) for record in stored.records()]
    assert sorted(places) == sorted(expected)


def test_a_driver_knows_its_own_partitions() -> None:
    planned, batch = Planned(ordered=True), MicroBatch("s", 0, {("t", 1): 5, ("u", 0): 6})
    plan = of_readings(planned, {"t": "x"}).batch_write(batch)
    messages = [plan.writer.write(partition, []) for partition in batch.ends]
    assert [message.share for message in messages] == list(batch.ends)
    plan.commit(messages)
    [(moved, shares)] = planned.commits
    assert moved.ends == {("t@x", 1): 5, ("u", 0): 6}
    assert {message.share for message in shares} == moved.ends.keys()
