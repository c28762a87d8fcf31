"""A broker that restarts under a stream."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.local import KafkaSettings, LocalKafka
from tests.integration.faults.followed import ROWS, Followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.promise("stream.broker-restart")
def test_a_stream_goes_on_after_its_broker_restarted(spark: SparkSession, prefix: str, tmp_path: Path) -> None:
    """The same query, without a restart of its own; twice, since the second time its clients have reconnected once."""
    with LocalKafka(tmp_path / "kafka", KafkaSettings(heap_mib=256)) as kafka:
        followed = Followed(spark, kafka, prefix, tmp_path)
        followed.insert(ROWS, 0)
        with followed.running() as running:
            running.until_shown(ROWS, {0})
            for number in (1, 2):
                kafka.kill()
                kafka.start()
                followed.insert(ROWS, number)
                running.until_shown(ROWS, set(range(number + 1)))
        followed.feed.close()
