"""`tailrace sink-letters` on a real Kafka: what had no schema when it came is merged when it has one."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from tailrace.local import LocalKafka
from tailrace_common.kafka import RecordFetcher
from tailrace_schemas.avro import Encoder
from tailrace_schemas.errors import ServiceError
from tailrace_spark.sinks.protocol import DeadLetter, Piece, Place
from tailrace_spark.sinks.sql import SqlSink
from tests.integration.feed import Feed
from tests.integration.streams import PROGRAM
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

PLAIN = table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name="plain")


def test_a_record_is_read_by_its_place(kafka: LocalKafka, prefix: str) -> None:
    with (
        closing(Feed(kafka.bootstrap, prefix)) as feed,
        RecordFetcher({"bootstrap.servers": kafka.bootstrap}) as records,
    ):
        topic = feed.topic(PLAIN)
        with (
            RecordFetcher({"bootstrap.servers": "127.0.0.1:1"}, timeout=1) as nowhere,
            pytest.raises(ServiceError, match=r"Kafka: asking for .*refused"),
        ):
            nowhere.value(topic, 0, 0)
        assert records.value(topic, 0, 0) is None
        feed.add(PLAIN)
        feed.poison(PLAIN, b"a", b"b")
        assert [records.value(topic, 0, offset) for offset in (1, 0, 2, 9)] == [b"b", b"a", None, None]
        assert records.value(topic, 7, 0) is None


@pytest.mark.long
def test_letters_of_a_stream_with_filters_and_masks_are_read_again_and_shaped(
    kafka: LocalKafka, prefix: str, tmp_path: Path
) -> None:
    """None of their bytes were kept; what the filter leaves out is none of the table's."""
    url = f"sqlite:///{tmp_path / 'sink.db'}"
    (tmp_path / "tailrace.toml").write_text(
        f'[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n[topics]\nprefix = "{prefix}"\n'
        f'[stream]\nwhere = {{"shop.plain" = "id > 1"}}\ncolumns = {{"shop.plain.v" = "mask"}}\n'
        f'[sink.local]\nurl = "{url}"\n[stream.spark]\n"spark.master" = "local[1]"\n'
    )
    with closing(SqlSink(url)) as sink, closing(Feed(kafka.bootstrap, prefix)) as feed:
        encoder = feed.add(PLAIN)
        feed.poison(PLAIN, *[encoder.value(Log(PLAIN).insert((number,), (), 10, v="late")) for number in (1, 2)])
        places = [Place(feed.topic(PLAIN), 0, offset) for offset in (0, 1, 99)]
        sink.write([Piece((), tuple(DeadLetter(place, "why") for place in places))])
        taken = letters("replay", "local", place=tmp_path)
        assert "2 taken in, 0 set aside again, 1 left" in taken.stderr, taken.stderr
        assert taken.returncode == 1
        assert [letter.place.offset for letter in sink.letters(None, 9)] == [99]
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT id, v FROM shop_plain")).all() == [(2, "***")]
    engine.dispose()


def letters(*words: str, place: Path) -> subprocess.CompletedProcess[str]:
    """The command, with the settings there."""
    command = [sys.executable, *PROGRAM, "sink-letters", *words, "-c", str(place / "tailrace.toml")]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


def test_letters_are_listed_and_merged_again(kafka: LocalKafka, prefix: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'sink.db'}"
    (tmp_path / "tailrace.toml").write_text(
        f'[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n[topics]\nprefix = "{prefix}"\n'
        f'[sink.local]\nurl = "{url}"\n[sink.out]\ntype = "console"\n'
    )
    value = Encoder(PLAIN, prefix).value(Log(PLAIN).insert((1,), (), 10, v="late"))
    with closing(SqlSink(url)) as sink, closing(Feed(kafka.bootstrap, prefix)) as feed:
        sink.write([Piece((), (DeadLetter(Place("t", 3, 4), "what schema?", value),))])
        listed = letters("list", "local", place=tmp_path)
        assert json.loads(listed.stdout) == {
            "topic": "t",
            "partition": 3,
            "offset": 4,
            "bytes": len(value),
            "reason": "what schema?",
        }
        refused = letters("replay", "local", place=tmp_path)
        assert (refused.returncode, "0 taken in, 1 set aside again" in refused.stderr) == (1, True)
        feed.add(PLAIN)
        taken = letters("replay", "local", place=tmp_path)
        assert (taken.returncode, "1 taken in, 0 set aside again" in taken.stderr) == (0, True), taken.stderr
        assert list(sink.letters(None, 1)) == []
        over = letters("replay", "local", place=tmp_path)
        assert (over.returncode, "there are no dead letters" in over.stderr) == (0, True)
    for words, told in (
        (("list", "nowhere"), "there is no [sink.nowhere]; set: local, out"),
        (("replay", "out"), "docs/sinks/console.md"),
    ):
        wrong = letters(*words, place=tmp_path)
        assert (wrong.returncode, told in wrong.stderr) == (2, True), wrong.stderr
