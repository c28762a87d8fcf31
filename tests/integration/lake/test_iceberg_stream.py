"""Iceberg tables behind a real Kafka and `tailrace stream`, which brings what Spark needs for them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.local import LocalKafka
from tailrace_common.settings_sink_iceberg import IcebergSinkSettings
from tests.integration.feed import Feed
from tests.integration.lake.iceberg import FollowedIceberg, IcebergHistory
from tests.integration.streams import PROGRAM
from tests.integration.test_change_log_sinks import PLAIN, by_key, history, states
from tests.unit.spark.sinks.change_log_contract import changes_of
from tests.unit.spark.sinks.merging_contract import selected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def feed(kafka: LocalKafka, prefix: str) -> Iterator[Feed]:
    """An empty cluster's topics."""
    feed = Feed(kafka.bootstrap, prefix)
    yield feed
    feed.close()


def tailrace(log: Path, *words: str) -> str:
    """What a command prints, as a process of its own; `log` has what it says besides."""
    with log.open("ab") as said:
        done = subprocess.run(
            [sys.executable, *PROGRAM, *words], stdout=subprocess.PIPE, stderr=said, text=True, check=False
        )
    assert done.returncode == 0, log.read_text()
    return done.stdout


@pytest.mark.long
def test_topics_end_in_iceberg_tables(
    spark: SparkSession, feed: Feed, kafka: LocalKafka, prefix: str, tmp_path: Path
) -> None:
    """Each change once, and rows as SELECT has them; a stream that lost its checkpoint adds nothing."""
    config, checkpoint, log = tmp_path / "t.toml", tmp_path / "checkpoint", tmp_path / "stream.log"
    sections = {"log": {"path": str(tmp_path / "log")}, "rows": {"path": str(tmp_path / "rows"), "mode": "current"}}
    config.write_text(
        f'[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n[topics]\nprefix = "{prefix}"\n'
        f'[stream]\ncheckpoint = "{checkpoint}"\nmax_offsets_per_trigger = 40\n'
        '[stream.spark]\n"spark.master" = "local[1]"\n"spark.driver.memory" = "768m"\n'
        + "".join(
            f'[sink.{name}]\ntype = "iceberg"\nbuckets = 2\n'
            + "".join(f"{key} = {json.dumps(value)}\n" for key, value in section.items())
            for name, section in sections.items()
        )
    )
    settings = {
        name: IcebergSinkSettings.model_validate({**section, "buckets": 2}) for name, section in sections.items()
    }
    feed.announce()
    first, second = history(10), history(20)
    feed.publish(first)
    tailrace(log, "stream", "-c", str(config), "--sink", "log", "--once")
    feed.publish(second)
    shutil.rmtree(checkpoint)
    tailrace(log, "stream", "-c", str(config), "--sink", "log", "--once")
    kept = IcebergHistory(settings["log"], spark).records()
    changes = [change for found in changes_of(kept, PLAIN).values() for change in found]
    assert len(kept) == len(first) + len(second)
    assert states(by_key(changes)) == states(by_key([*first, *second]))
    shutil.rmtree(checkpoint)
    tailrace(log, "stream", "-c", str(config), "--sink", "rows", "--once")
    shown = FollowedIceberg(settings["rows"], spark)
    assert shown.rows(PLAIN, "id", "c", "v") == selected(PLAIN, [*first, *second], "id", "c", "v")
    listed = [
        json.loads(line)
        for line in tailrace(log, "iceberg", "tables", "-c", str(config), "--sink", "rows").splitlines()
    ]
    assert [one["table"] for one in listed] == ["shop.plain", "shop.plain-state"]
