"""The stream into OpenSearch by tasks: what topics have, truncations and dead letters among it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.local import LocalKafka
from tailrace_common.settings import Settings
from tests import java_sources, opensearch
from tests.integration.feed import Feed
from tests.integration.histories import follow
from tests.integration.letters import letters_in
from tests.unit.spark.cassandra import Log, truncate
from tests.unit.spark.sinks.opensearch.indexes import Searched
from tests.unit.tables import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAIN = table({"k": "int"}, regular={"v": "int"}, keyspace="shop", name="plain")
WIDER = table({"k": "int"}, regular={"v": "int", "w": "text"}, keyspace="shop", name="plain")
WRITTEN = 5_000_000
MUCH_LATER = 90_000_000_000


@pytest.mark.promise("stream.execution")
@pytest.mark.long
@pytest.mark.skipif(java_sources.missing() is not None, reason=str(java_sources.missing()))
def test_tasks_write_what_topics_have(spark: SparkSession, kafka: LocalKafka, prefix: str, tmp_path: Path) -> None:
    """By tasks, by the driver where the table is truncated, by tasks without a checkpoint; a column is added."""
    searched, log = Searched(opensearch.server().url), Log(WIDER)
    section = {"type": "opensearch", **searched.settings.model_dump(exclude_unset=True)}
    settings = Settings.model_validate(
        {
            "kafka": {"bootstrap.servers": kafka.bootstrap},
            "topics": {"prefix": prefix},
            "stream": {"snapshot": "never", "checkpoint": str(tmp_path / "checkpoint"), "max_offsets_per_trigger": 100},
            "sink": {"search": section},
        }
    )

    def run(**stream: str) -> tuple[set[str], int]:
        """Who wrote, and how many dead letters there were."""
        own = settings.stream.model_copy(update={"execution": "executors", **stream})
        batches = follow(spark, settings.model_copy(update={"stream": own}), "search")
        return {batch.execution for batch in batches if batch.records}, sum(
            batch.summary.dead_letters for batch in batches
        )

    with closing(Feed(kafka.bootstrap, prefix)) as feed:
        feed.announce()
        feed.publish([Log(PLAIN).insert((key,), (), WRITTEN, v=key) for key in range(50)])
        feed.poison(PLAIN, b"no change at all")
        writers, letters = run()
        assert (writers, letters) == ({"executors"}, 1)
        feed.publish([log.update((key,), (), WRITTEN + 1, w=str(key)) for key in range(50)])
        feed.publish([log.delete((key,), (), WRITTEN + 2) for key in range(0, 50, 2)])
        writers, letters = run()
        assert (writers, letters) == ({"executors"}, 0)
        rows = [(key, key, str(key)) for key in range(1, 50, 2)]
        assert searched.rows(WIDER, "k", "v", "w") == sorted(rows, key=repr)
        feed.publish([truncate(WIDER, "h", 50_000_000)])
        feed.publish([log.insert((key,), (), MUCH_LATER, v=0, w="new") for key in range(3)])
        writers, _ = run()
        assert "driver" in writers
        assert searched.rows(WIDER, "k", "v", "w") == [(0, 0, "new"), (1, 0, "new"), (2, 0, "new")]
        _, letters = run(checkpoint=str(tmp_path / "lost"))
        assert letters == 1
        assert searched.rows(WIDER, "k", "v", "w") == [(0, 0, "new"), (1, 0, "new"), (2, 0, "new")]
    assert [letter.message for letter in letters_in(kafka, prefix)] == [b"no change at all"]
