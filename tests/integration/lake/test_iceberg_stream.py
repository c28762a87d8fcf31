"""Iceberg tables behind a real Kafka and `tailrace stream`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.local import LocalKafka
from tailrace_common.settings import Settings
from tailrace_spark.job.stream import Stream
from tailrace_spark.sinks.iceberg.settings import IcebergSinkSettings
from tailrace_spark.sinks.registry import open_sink
from tests.integration.feed import Feed
from tests.integration.histories import PLAIN, by_key, history, states
from tests.integration.processes import PROGRAM
from tests.services.class_archive import quick_java_lines
from tests.unit.spark.sinks.change_log_contract import changes_of
from tests.unit.spark.sinks.iceberg.stores import FollowedIceberg, IcebergHistory
from tests.unit.spark.sinks.merging_contract import selected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def feed(kafka: LocalKafka, prefix: str) -> Iterator[Feed]:
    """An empty cluster's topics."""
    feed = Feed(kafka.bootstrap, prefix)
    yield feed
    feed.close()


def stream_once(config: Path, log: Path) -> None:
    """`tailrace stream --once`, as a process of its own."""
    with log.open("ab") as said:
        command = [sys.executable, *PROGRAM, "stream", "-c", str(config), "--once"]
        done = subprocess.run(command, stdout=said, stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, log.read_text()


@pytest.mark.promise("iceberg.once")
@pytest.mark.long
def test_a_stream_writes_each_change_once(feed: Feed, kafka: LocalKafka, prefix: str, tmp_path: Path) -> None:
    """Also one that lost its checkpoint."""
    config, checkpoint, log = tmp_path / "t.toml", tmp_path / "checkpoint", tmp_path / "stream.log"
    config.write_text(
        f'[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n[topics]\nprefix = "{prefix}"\n'
        f'[stream]\nsnapshot = "never"\ncheckpoint = "{checkpoint}"\nmax_offsets_per_trigger = 40\n'
        '[stream.spark]\n"spark.master" = "local[1]"\n"spark.driver.memory" = "768m"\n'
        f"{quick_java_lines()}"
        f'[sink.lake]\ntype = "iceberg"\npath = "{tmp_path}/lake"\n'
    )
    feed.announce()
    first, second = history(10), history(20)
    feed.publish(first)
    stream_once(config, log)
    feed.publish(second)
    shutil.rmtree(checkpoint)
    stream_once(config, log)
    kept = IcebergHistory(IcebergSinkSettings(path=f"{tmp_path}/lake")).records()
    assert len(kept) == len(first) + len(second)
    changes = list(changes_of(kept, PLAIN).values())
    assert states(by_key(changes)) == states(by_key([*first, *second]))


@pytest.mark.promise("iceberg.current")
@pytest.mark.long
def test_a_stream_keeps_a_table_equal_to_the_source(
    spark: SparkSession, feed: Feed, kafka: LocalKafka, prefix: str, tmp_path: Path
) -> None:
    lake = {"type": "iceberg", "path": f"{tmp_path}/lake", "mode": "current", "buckets": 2}
    settings = Settings.model_validate(
        {
            "kafka": {"bootstrap.servers": kafka.bootstrap},
            "topics": {"prefix": prefix},
            "stream": {"snapshot": "never", "checkpoint": str(tmp_path / "checkpoint"), "max_offsets_per_trigger": 40},
            "sink": {"lake": lake},
        }
    )
    feed.announce()
    changes = [*history(10), *history(20)]
    feed.publish(changes)
    with closing(open_sink("lake", settings.sink["lake"], prefix)) as sink:
        sink.reach()
        Stream(spark, settings, sink).run(availableNow=True)
    shown = FollowedIceberg(IcebergSinkSettings.model_validate(lake))
    assert shown.rows(PLAIN, "id", "c", "v") == selected(PLAIN, changes, "id", "c", "v")
