"""`tailrace stream` as a process: it follows, tells its numbers, and ends cleanly by SIGTERM."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tailrace.local import LocalKafka
from tailrace.local.ports import free_port
from tests.integration.feed import Feed
from tests.integration.streams import StreamProcess, read_metrics
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import Database
from tests.unit.tables import table

PLAIN = table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name="plain")
LOG = Log(PLAIN)


@pytest.mark.promise("stream.status")
def test_the_command_follows_and_ends(feed: Feed, kafka: LocalKafka, prefix: str, tmp_path: Path) -> None:
    """That it goes on after kill -9 is `test_a_killed_stream_goes_on`."""
    feed.publish([LOG.insert((1,), (), 5_000_000, v="a")])
    url, port = f"sqlite:///{tmp_path}/sink.db", free_port("127.0.0.1")
    database = Database(url)

    def shows(*ids: int) -> bool:
        there = "shop_plain" in database.names()
        return there and database.select("SELECT id FROM shop_plain") == [(number,) for number in ids]

    def metrics() -> dict[str, float]:
        lines = read_metrics(port).splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}

    behind = f'tailrace_stream_behind_records{{topic="{feed.topic(PLAIN)}"}}'
    with StreamProcess(tmp_path, kafka, prefix, url, stream={"metrics_port": port}) as stream:
        stream.until(lambda: shows(1))
        stream.until(lambda: metrics().get('tailrace_stream_records_total{table="shop.plain"}') == 1, 60)
        feed.publish([LOG.insert((2,), (), 5_000_000, v="b")])
        stream.until(lambda: shows(1, 2))
        feed.publish([LOG.delete((1,), (), 6_000_000)])
        feed.poison(PLAIN, b"no change")
        stream.until(lambda: shows(2) and metrics()["tailrace_stream_dead_letters_total"] == 1)
        stream.until(lambda: metrics()[behind] == 0)
        found, status = metrics(), json.loads(read_metrics(port, "status"))
        assert json.loads(read_metrics(port, "health/ready")) == {"ready": True}
        assert stream.stop() == 0, stream.words()
    assert found['tailrace_stream_records_total{table="shop.plain"}'] == 3
    assert found["tailrace_stream_changes_merged_total"] == 3
    assert found['tailrace_stream_marked_total{mark="undecodable"}'] == 1
    assert found["tailrace_stream_blocked"] == 0
    assert found["tailrace_stream_rows_per_second"] > 0
    assert 'tailrace_stream_lag_seconds{table="shop.plain"}' in found
    assert status["sink"] == {"name": "local", "type": "sql", "location": url}
    assert status["counts"]["dead_letters"] == 1
    assert "tailrace sink-letters list local" in status["last_error"]["action"]
    assert status["blocked"] is None
    said = stream.log.read_text()
    assert "finishing the current batch" in said
    assert "1 rows changed" in said
    names = {file.name for file in (tmp_path / "checkpoint" / "offsets").iterdir()}
    assert "0" in names
    assert ".0.crc" not in names  # Hadoop starts a process for each file that has one
    assert "Traceback" not in said
    database.close()


@pytest.mark.long
@pytest.mark.parametrize(("number", "group"), [(signal.SIGTERM, True), (signal.SIGINT, False)])
def test_a_held_batch_ends_without_a_word_of_java(
    empty_feed: Feed, kafka: LocalKafka, prefix: str, tmp_path: Path, number: signal.Signals, group: bool
) -> None:
    """Without a generation every batch is held; signals come to the process, or from terminals, to its group."""
    empty_feed.publish([LOG.insert((1,), (), 5_000_000, v="a")])
    with StreamProcess(tmp_path, kafka, prefix, f"sqlite:///{tmp_path}/sink.db") as stream:
        stream.until(lambda: "batch 0 waits for the generations" in stream.log.read_text())
        (os.killpg if group else os.kill)(stream.process.pid, number)
        assert stream.ended(60) == 0, stream.words()
    said = stream.log.read_text().partition("finishing the current batch")[2].strip().splitlines()
    assert [line for line in said if "has ended: another start goes on behind its last batch" not in line] == []
    assert len(said) == 1
