"""Dead letters in a real Kafka's topic; `tailrace sink-letters`: what had no schema when it came is merged later."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from tailrace.local import LocalKafka
from tailrace_common.kafka import RecordFetcher
from tailrace_common.settings import TopicSettings
from tailrace_schemas.avro import Encoder
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.batch.delivery import DeadLetter, RecordId
from tailrace_spark.sinks.letters import LetterReader
from tests.integration.feed import Feed
from tests.integration.letters import letters_in, topic_of
from tests.integration.processes import PROGRAM
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import Database
from tests.unit.spark.sinks.letters_contract import LETTERS, LettersContract, Room
from tests.unit.tables import table

PLAIN = table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name="plain")
OTHER = table({"id": "int"}, keyspace="shop", name="other")


def test_a_record_is_read_by_its_place(kafka: LocalKafka, prefix: str) -> None:
    with (
        closing(Feed(kafka.bootstrap, prefix)) as feed,
        RecordFetcher({"bootstrap.servers": kafka.bootstrap}) as records,
    ):
        topic = feed.topic(PLAIN)
        with (
            RecordFetcher({"bootstrap.servers": "127.0.0.1:1"}, timeout=1) as nowhere,
            pytest.raises(ServiceError, match=r"Kafka at 127\.0\.0\.1:1.*refused"),
        ):
            nowhere.value(topic, 0, 0)
        assert records.value(topic, 0, 0) is None
        feed.add(PLAIN)
        feed.poison(PLAIN, b"a", b"b")
        assert [records.value(topic, 0, offset) for offset in (1, 0, 2, 9)] == [b"b", b"a", None, None]
        assert records.value(topic, 7, 0) is None


class TestTopic(LettersContract):
    @pytest.fixture
    def room(self, kafka: LocalKafka, prefix: str) -> Iterator[Callable[[str], Room]]:
        with ExitStack() as readers:

            def new(sink: str) -> Room:
                topic = topic_of(kafka, prefix, sink)
                return Room(topic, lambda: readers.enter_context(LetterReader(topic)))

            yield new


@pytest.mark.promise("sinks.dead-letters")
def test_a_letter_that_is_too_large_is_kept_without_its_bytes(kafka: LocalKafka, prefix: str) -> None:
    topic = replace(topic_of(kafka, prefix), topics=TopicSettings(prefix=prefix, max_message_bytes=10_000))
    large = DeadLetter(RecordId("t", 0, 1), "too large", b"x" * 10_000)
    topic.put([large, LETTERS[0]])
    assert [letter.message for letter in letters_in(kafka, prefix)] == [b"", LETTERS[0].message]


@pytest.mark.promise("sinks.dead-letters")
def test_a_topic_that_may_not_be_made_is_told(kafka: LocalKafka, prefix: str, caplog: pytest.LogCaptureFixture) -> None:
    """Before anything is read; where nothing answers the first letter waits for it."""
    topic = replace(topic_of(kafka, prefix), topics=TopicSettings(prefix=prefix, create=False))
    for use in (topic.prepare, lambda: topic.put(LETTERS)):
        with pytest.raises(SettingsError, match=rf"{prefix}\.sink-letters is missing, and topics\.create is false"):
            use()
    with LetterReader(topic) as reader:
        assert reader.list(None, 9) == []
    nowhere = replace(topic, kafka={"bootstrap.servers": "127.0.0.1:1"})
    nowhere.prepare()
    assert "which dead letters will need" in caplog.text
    with pytest.raises(ServiceError, match=r"127\.0\.0\.1:1"):
        nowhere.put(LETTERS)


def rows_of(url: str) -> Sequence[tuple[int, str]]:
    with closing(Database(url)) as database:
        return database.select("SELECT id, v FROM shop_plain")


def letters(*words: str, place: Path) -> subprocess.CompletedProcess[str]:
    """The command, with the settings there."""
    return run([sys.executable, *PROGRAM, "sink-letters", *words], place)


def run(command: Sequence[str], place: Path) -> subprocess.CompletedProcess[str]:
    with_settings = [*command, "-c", str(place / "tailrace.toml")]
    return subprocess.run(with_settings, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.promise("sinks.dead-letters")
def test_letters_are_listed_and_merged_again(kafka: LocalKafka, prefix: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'sink.db'}"
    (tmp_path / "tailrace.toml").write_text(
        f'[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n[topics]\nprefix = "{prefix}"\n'
        f'[stream]\ncolumns = {{"shop.plain.v" = "mask"}}\n[sink.local]\nurl = "{url}"\n[sink.out]\ntype = "console"\n'
    )
    value = Encoder(PLAIN, prefix).value(Log(PLAIN).insert((1,), (), 10, v="late"))
    with closing(Feed(kafka.bootstrap, prefix)) as feed:
        feed.add(OTHER)
        feed.poison(OTHER, value)  # where a replay finds the bytes: with masks letters keep none
        topic = feed.topic(OTHER)
        topic_of(kafka, prefix).put([DeadLetter(RecordId(topic, 0, 0), "what schema?", value)])
        listed = letters("list", "local", place=tmp_path)
        assert json.loads(listed.stdout) == {
            "topic": topic,
            "partition": 0,
            "offset": 0,
            "bytes": len(value),
            "reason": "what schema?",
        }
        refused = letters("replay", "local", place=tmp_path)
        assert (refused.returncode, "0 taken in, 1 set aside again" in refused.stderr) == (1, True)
        feed.add(PLAIN)
        taken = letters("replay", "local", place=tmp_path)
        assert (taken.returncode, "1 taken in, 0 set aside again" in taken.stderr) == (0, True), taken.stderr
        assert (letters_in(kafka, prefix), rows_of(url)) == ([], [(1, "***")])
        over = letters("replay", "local", place=tmp_path)
        assert (over.returncode, "there are no dead letters" in over.stderr) == (0, True)
    wrong = letters("list", "nowhere", place=tmp_path)
    assert (wrong.returncode, "there is no [sink.nowhere]; set: local, out" in wrong.stderr) == (2, True), wrong.stderr
    topic_of(kafka, prefix, "out").put(LETTERS)
    unsure = letters("remove", "out", place=tmp_path)
    assert (unsure.returncode, "There is no terminal to ask on: give --yes" in unsure.stderr) == (2, True)
    gone = letters("remove", "out", "--yes", place=tmp_path)
    assert (gone.returncode, f"{len(LETTERS)} removed" in gone.stderr) == (0, True), gone.stderr
    assert letters_in(kafka, prefix) == []
