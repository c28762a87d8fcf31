"""Dead letters in a file: listed, sent again to a real endpoint, kept until they are taken, while others write."""

from __future__ import annotations

import fcntl
import json
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from tailrace_common.settings import Settings
from tailrace_schemas.avro import Encoder, SchemaEntry
from tailrace_schemas.errors import ServiceError
from tailrace_spark.batch.delivery import DeadLetter, Piece, RecordId, Summary
from tailrace_spark.job.replay import ReplayCounts, all_letters, replay_letters
from tailrace_spark.sinks.changelog.dead_letter_file import DeadLetterFile
from tailrace_spark.sinks.changelog.file_dead_letters import StoredDeadLettersSink
from tailrace_spark.sinks.registry import open_sink
from tailrace_spark.source.decode import pieces
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.http.endpoint import TAKEN, Answer, Request
from tests.unit.spark.sinks.http.posted import Posted
from tests.unit.spark.sinks.letters_contract import NONE, nowhere
from tests.unit.tables import table

PLAIN = table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name="plain")
LOG = Log(PLAIN)
ENCODER = Encoder(PLAIN, "t")
SCHEMAS = {
    ENCODER.schema_id: SchemaEntry(schema_id=ENCODER.schema_id, topic="t", table=PLAIN, avro=ENCODER.schema_text)
}


def letter(number: int) -> DeadLetter:
    """A change that was not understood when it came; they spread over topics and partitions."""
    value = ENCODER.value(LOG.insert((number,), (), 10, v=f"v{number}"))
    return DeadLetter(RecordId(f"t{number % 2}", number % 3, number, ENCODER.schema_id), "what schema?", value)


LETTERS = tuple(letter(number) for number in range(7))
IN_ORDER = sorted(LETTERS, key=lambda one: (one.record_id.topic, one.record_id.partition, one.record_id.offset))


@pytest.fixture
def posted(tmp_path: Path) -> Iterator[Posted]:
    """An endpoint."""
    posted = Posted(tmp_path)
    yield posted
    posted.endpoint.close()


@pytest.fixture
def sink(posted: Posted) -> Iterator[StoredDeadLettersSink]:
    """One that has set seven records aside."""
    with closing(posted.sink()) as sink:
        assert list(sink.dead_letters(None, 5)) == []
        sink.write([Piece((), LETTERS)])
        yield sink


def ids(posted: Posted) -> list[int]:
    return [one["key"]["id"] for one in posted.endpoint.taken]


@pytest.mark.parametrize("section", [{"type": "http", "url": "http://h"}, {"type": "rabbitmq", "url": "amqp://h"}])
def test_the_sinks_that_keep_letters_in_a_file_give_them_back(section: dict[str, str]) -> None:
    settings = Settings.model_validate({"sink": {"x": section}})
    with closing(open_sink("x", settings.sink["x"], "t")) as sink:
        assert sink.capabilities.dead_letters is not None


@pytest.mark.promise("sinks.dead-letters")
def test_what_is_not_understood_or_refused_again_stays(posted: Posted, sink: StoredDeadLettersSink) -> None:
    assert sum(
        replay_letters(sink, partial(pieces, schemas=NONE), nowhere, per_batch=2), ReplayCounts()
    ) == ReplayCounts(again=7)
    assert [one.record_id for one in all_letters(sink)] == [one.record_id for one in IN_ORDER]

    def answer(request: Request) -> Answer:
        return (400, {}, b"no") if request.changes[0]["key"]["id"] in (2, 5) else TAKEN

    posted.endpoint.answer = answer
    assert sum(
        replay_letters(sink, partial(pieces, schemas=SCHEMAS), nowhere, per_batch=2), ReplayCounts()
    ) == ReplayCounts(taken=5, again=2)
    assert [one.record_id.offset for one in all_letters(sink)] == [2, 5]
    with closing(posted.sink()) as another:
        assert [one.record_id.offset for one in all_letters(another)] == [2, 5]


def test_what_filters_leave_out_goes(posted: Posted, sink: StoredDeadLettersSink) -> None:
    assert sink.replay(LETTERS[:2], [Piece(())]) == Summary()
    assert [one.record_id.offset for one in sorted(all_letters(sink), key=lambda one: one.record_id.offset)] == [
        2,
        3,
        4,
        5,
        6,
    ]
    assert ids(posted) == []


@pytest.mark.promise("sinks.dead-letters")
def test_a_sink_that_is_not_there_keeps_what_was_not_sent(posted: Posted, sink: StoredDeadLettersSink) -> None:
    posted.endpoint.answer = lambda request: TAKEN if request.number < 3 else (503, {}, b"")
    with closing(posted.sink(retry_seconds=0.01)) as impatient, pytest.raises(ServiceError):
        list(replay_letters(impatient, partial(pieces, schemas=SCHEMAS), nowhere, per_batch=2))
    assert len(list(all_letters(sink))) == 4
    posted.endpoint.answer = lambda _: TAKEN
    assert sum(
        replay_letters(sink, partial(pieces, schemas=SCHEMAS), nowhere, per_batch=2), ReplayCounts()
    ) == ReplayCounts(taken=4)
    assert sorted(ids(posted)) == list(range(7))


@pytest.mark.promise("sinks.dead-letters")
def test_a_stream_may_write_meanwhile(tmp_path: Path) -> None:
    """Two processes have two files open: nothing of one is lost or cut by the other."""
    path = tmp_path / "letters.jsonl"
    stream, command = DeadLetterFile(path), DeadLetterFile(path)
    stream.put([large(0)])

    def replay() -> None:
        while letters := command.list(None, 3):
            command.remove([letter for letter in letters if letter.record_id.offset < 40])
            if letters[-1].record_id.offset == 40:
                break

    replaying = threading.Thread(target=replay)
    replaying.start()
    for number in range(1, 41):
        stream.put([large(number)])
    replaying.join()
    replay()
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert sorted(one["offset"] for one in lines if "reason" in one) == list(range(41))
    assert sorted(one["offset"] for one in lines if "replayed" in one) == list(range(40))
    assert DeadLetterFile(path).list(None, 500) == [large(40)]


def test_half_a_line_of_another_process_ruins_no_letter(tmp_path: Path) -> None:
    """Such as a replay's that ran into a full disk while a stream, which knows what it wrote, adds to the file."""
    path = tmp_path / "letters.jsonl"
    stream = DeadLetterFile(path)
    stream.put([large(1)])
    with path.open("a") as file:
        file.write('{"topic": "t", "parti')
    stream.put([large(2)])
    assert DeadLetterFile(path).list(None, 500) == [large(1), large(2)]


@pytest.mark.promise("sinks.dead-letters")
def test_one_at_a_time_has_the_file(tmp_path: Path) -> None:
    path = tmp_path / "letters.jsonl"
    with DeadLetterFile(path)._locked("a+b"), path.open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def large(number: int) -> DeadLetter:
    return DeadLetter(RecordId("t", 0, number), "x" * 5000)
