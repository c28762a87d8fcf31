"""`tailrace stream` as a process: it follows, it goes on after kill -9, SIGTERM ends it cleanly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tailrace.local import LocalKafka
from tests.integration.feed import Feed
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import Database
from tests.unit.tables import table

PLAIN = table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name="plain")
LOG = Log(PLAIN)


@pytest.fixture
def feed(kafka: LocalKafka, prefix: str) -> Iterator[Feed]:
    """An empty cluster's topics."""
    feed = Feed(kafka.bootstrap, prefix)
    yield feed
    feed.close()


def start(directory: Path, kafka: LocalKafka, prefix: str, log: Path) -> subprocess.Popen[bytes]:
    """The command, with everything it writes below `directory`."""
    config = directory / "tailrace.toml"
    config.write_text(
        f'[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n[topics]\nprefix = "{prefix}"\n'
        f'[stream]\ncheckpoint = "{directory}/checkpoint"\ntrigger_seconds = 0\n'
        f'[sink.local]\nurl = "sqlite:///{directory}/sink.db"\n'
        '[stream.spark]\n"spark.master" = "local[1]"\n"spark.driver.memory" = "512m"\n'
    )
    command = [sys.executable, "-c", "from tailrace.cli.main import run; run()", "stream", "-c", str(config)]
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(os.environ),
            cwd=directory,
            start_new_session=True,
        )


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def test_the_command_follows_and_ends(feed: Feed, kafka: LocalKafka, prefix: str, tmp_path: Path) -> None:
    feed.announce()
    feed.publish([LOG.insert((1,), (), 5_000_000, v="a")])
    url = f"sqlite:///{tmp_path}/sink.db"
    database = Database(url, sa.create_engine(url))

    def shows(*ids: int) -> bool:
        there = "shop_plain" in database.names()
        return there and database.select("SELECT id FROM shop_plain") == [(number,) for number in ids]

    first, second = tmp_path / "first.log", tmp_path / "second.log"
    process = start(tmp_path, kafka, prefix, first)
    try:
        wait_for(lambda: shows(1), process, first)
        feed.publish([LOG.insert((2,), (), 5_000_000, v="b")])
        wait_for(lambda: shows(1, 2), process, first)
    finally:
        process.kill()
        process.wait(30)
    process = start(tmp_path, kafka, prefix, second)
    try:
        feed.publish([LOG.delete((1,), (), 6_000_000)])
        wait_for(lambda: shows(2), process, second)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, second.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(30)
    said = second.read_text()
    assert "finishing the current batch" in said
    assert "1 rows changed" in said
    assert "Traceback" not in said
    database.engine.dispose()


@pytest.mark.parametrize(
    ("number", "group"),
    [(signal.SIGTERM, True), (signal.SIGINT, False)],
)
def test_a_held_batch_ends_without_a_word_of_java(
    feed: Feed, kafka: LocalKafka, prefix: str, tmp_path: Path, number: signal.Signals, group: bool
) -> None:
    """Without a generation every batch is held; signals come to the process, or from terminals, to its group."""
    feed.publish([LOG.insert((1,), (), 5_000_000, v="a")])
    log = tmp_path / "stream.log"
    process = start(tmp_path, kafka, prefix, log)
    try:
        wait_for(lambda: "holding batch 0 for the generations" in log.read_text(), process, log)
        (os.killpg if group else os.kill)(process.pid, number)
        assert process.wait(60) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(30)
    said = log.read_text().partition("finishing the current batch")[2].strip().splitlines()
    assert [line for line in said if not line.endswith("the stream has ended")] == []
    assert len(said) == 1
