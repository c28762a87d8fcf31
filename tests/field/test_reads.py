"""Rows that Cassandra does not give: by each way of reading them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from cassandra.cluster import Session
from cassandra.concurrent import execute_concurrent_with_args

from tailrace.local import CassandraSettings, LocalCassandra, LocalKafka
from tailrace_common.settings import Settings
from tailrace_schemas.change import Change
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table_json import table_to_json
from tailrace_spark.cli.read_options import read_settings
from tailrace_spark.comparison.source import TableSource
from tailrace_spark.snapshot.announcing import Announcer
from tailrace_spark.snapshot.progress import State
from tailrace_spark.snapshot.publication import Publication, estimated, survey
from tailrace_spark.snapshot.publishing import NumberedPiece, PublishTask, RangeOutcome
from tailrace_spark.snapshot.reading import UnreadableError
from tailrace_spark.snapshot.settings import SnapshotSettings
from tests.integration.snapshot.following import placed
from tests.oracle.comparison import Downstream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.long]

THRESHOLD: Final = 1000
"""More tombstones end a page, and its read."""
ROWS: Final = 20
SPARSE: Final = 200
"""Tombstones before each row: pages of four rows pass, and those of ten do not."""
TOMBSTONES: Final = CassandraSettings(
    yaml={"tombstone_warn_threshold": THRESHOLD // 2, "tombstone_failure_threshold": THRESHOLD}
)


def run_here(work: Sequence[tuple[NumberedPiece, ...]], task: PublishTask) -> list[RangeOutcome]:
    """As Spark does, one after the other in this process."""
    return [outcome for pieces in work for outcome in task(iter([pieces]))]


def reading(settings: Settings, table: str, **options: object) -> SnapshotSettings:
    limits = {"consistency": "ONE", "concurrent_ranges": 2, "ranges": 4, "attempts": 2, **options}
    return read_settings(settings, table=table, rows="changes", prefix=settings.topics.prefix, **limits)


def changes(settings: SnapshotSettings) -> Iterator[Change]:
    """The rows of a table as tasks read them."""
    seen = survey(settings)
    source = TableSource(settings, json.dumps(table_to_json(seen.table)), seen.release)
    return (change for change, _ in source.changes(seen.pieces(settings), 1))


def fill(session: Session, table: str, tombstones: int) -> None:
    """Rows of one partition, each behind so many deleted ones."""
    session.execute(f"CREATE TABLE {table} (k int, c int, v text, PRIMARY KEY (k, c))")
    delete = session.prepare(f"DELETE FROM {table} WHERE k = 1 AND c = ?")
    insert = session.prepare(f"INSERT INTO {table} (k, c, v) VALUES (1, ?, 'v')")
    step = tombstones + 1
    gone = [(row * step + number,) for row in range(ROWS) for number in range(tombstones)]
    execute_concurrent_with_args(session, delete, gone, concurrency=64)
    execute_concurrent_with_args(session, insert, [(row * step + tombstones,) for row in range(ROWS)])
    session.execute(f"ALTER TABLE {table} WITH cdc = true")


@pytest.mark.promise("snapshot.unreadable")
def test_one_range_behind_too_many_tombstones_is_its_tables_failure_and_no_others(
    kafka: LocalKafka, spark: SparkSession, tmp_path: Path
) -> None:
    with (
        LocalCassandra(tmp_path / "node", TOMBSTONES) as node,
        placed(node, kafka, tmp_path, spark) as place,
    ):
        dead, plain, sparse = (f"{place.keyspace}.{name}" for name in ("dead", "plain", "sparse"))
        fill(place.session, dead, THRESHOLD + 10)
        fill(place.session, plain, 0)
        fill(place.session, sparse, SPARSE)
        limits = {"page_rows": 5000, "attempts": 2}
        settings = place.settings("(dead|plain|sparse)", "only", limits=limits)
        store = Downstream(f"sqlite:///{tmp_path / 'copy.db'}")
        with closing(store), closing(store.open(lambda: 1e9)) as sink:
            stream = place.stream(sink, settings)
            stream.run()
            states = {snapshot.table: snapshot for snapshot in stream.snapshots.tables}
            assert {name: snapshot.state for name, snapshot in states.items()} == {
                dead: State.REFUSED,
                plain: State.DONE,
                sparse: State.DONE,
            }
            words = states[dead].reason
            assert f"of {dead} cannot be read, not even a row at a time: " in words
            assert "tombstone" in words.lower()
            assert "raise that, or compact the table" in words
            assert len(store.rows(place.table("plain"))) == len(store.rows(place.table("sparse"))) == ROWS
        # The other ways pass the same reader.
        assert len(list(changes(reading(settings, sparse)))) == ROWS
        assert estimated(reading(settings, sparse)).rows is not None
        with pytest.raises(UnreadableError, match=f"of {dead} cannot be read"):
            list(changes(reading(settings, dead)))
        publication = Publication(Announcer(settings), reading(settings, dead, ranges=16))
        publication.begin(new=False)
        with pytest.raises(ServiceError, match=f"range .* of {dead}: .* cannot be read, not even a row at a time"):
            publication.publish(run_here)
        totals, left = publication.totals()
        assert (totals.done, len(left)) == (totals.ranges - 1, 1)
