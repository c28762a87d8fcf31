"""`tailrace sink-letters` on a real Kafka: what had no schema when it came is merged when it has one."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from tailrace.local import LocalKafka
from tailrace_schemas.avro import Encoder
from tailrace_spark.sinks.protocol import DeadLetter, Piece, Place
from tailrace_spark.sinks.sql import SqlSink
from tests.integration.feed import Feed
from tests.integration.streams import PROGRAM
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

PLAIN = table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name="plain")


def letters(*words: str, place: Path) -> subprocess.CompletedProcess[str]:
    """The command, with the settings there."""
    command = [sys.executable, *PROGRAM, "sink-letters", *words, "-c", str(place / "tailrace.toml")]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


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
