"""Iceberg tables that a real REST catalog knows: it decides where they stand, and which of two commits came first."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tailrace_schemas.errors import ServiceError
from tailrace_spark.sinks.changelog.sink import ChangeLogSink
from tailrace_spark.sinks.iceberg.settings import IcebergSinkSettings
from tailrace_spark.sinks.lake.history import LakeHistory
from tailrace_spark.sinks.protocol import write_here
from tests import iceberg_rest, java_sources
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import PLAIN, WIDE, Topic, deliver
from tests.unit.spark.sinks.iceberg.stores import FollowedIceberg, IcebergHistory, require_followed
from tests.unit.spark.sinks.lake.stores import overtaken

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(java_sources.missing() is not None, reason=str(java_sources.missing())),
]


def section(**more: object) -> IcebergSinkSettings:
    """Of tables in a namespace of their own; the catalog is told which of its warehouses they are in."""
    server = iceberg_rest.server()
    catalog = {"type": "rest", "uri": server.url, "warehouse": "lake"}
    own = {"path": str(server.warehouse), "catalog": catalog, "namespace": f"n{uuid4().hex}", "buckets": 2}
    return IcebergSinkSettings.model_validate({**own, **more})


def test_tables_of_a_rest_catalog_follow_the_source() -> None:
    """The catalog says where they are."""
    require_followed(FollowedIceberg(section(mode="current")))


@pytest.mark.parametrize("before", [0, 1])
def test_of_two_one_fails_and_finds_its_batch_done(before: int) -> None:
    """The other is done when this one is staged, and the catalog is asked with what was true before."""
    stored, topic, log = IcebergHistory(section()), Topic(), Log(PLAIN)
    for number in range(before):
        deliver(stored, topic.piece(log.insert((number,), (), 1, v="x")))
    piece = topic.piece(log.insert((before,), (), 2, v="y"))

    with closing(ChangeLogSink(LakeHistory(overtaken(stored.opened(), lambda: deliver(stored, piece))))) as sink:
        with pytest.raises(ServiceError, match="another writer came first"):
            write_here(sink, [piece])
        assert write_here(sink, [piece]).rows == 0
    assert len(stored.records()) == before + 1


@pytest.mark.promise("iceberg.values")
@pytest.mark.long
def test_spark_reads_and_pyiceberg_goes_on(spark: SparkSession) -> None:
    """Through one catalog: what the sink wrote, and what Spark's compaction made of it; null lists of structs too."""
    stored, topic, log = IcebergHistory(section()), Topic(), Log(WIDE)
    deliver(stored, topic.piece(log.insert((0,), (), 1, v="x"), log.insert((1,), (), 2, z=[{"key": "a", "value": 1}])))
    session = spark.newSession()
    settings = {"type": "rest", "uri": iceberg_rest.server().url, "warehouse": "lake", "cache-enabled": "false"}
    session.conf.set("spark.sql.catalog.rest", "org.apache.iceberg.spark.SparkCatalog")
    for name, value in settings.items():
        session.conf.set(f"spark.sql.catalog.rest.{name}", value)
    name = f"rest.{stored.settings.namespace}.shop.plain"
    for _ in range(2):
        rows = session.table(name).orderBy("offset").select("columns.v", "columns.z").collect()
        assert [(row["v"], row["z"]) for row in rows] == [("x", None), (None, [("a", 1)])]
        compacted = f"CALL rest.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))"
        session.sql(compacted).collect()
    deliver(stored, topic.piece(log.insert((2,), (), 3, v="y")))
    assert [record["columns"] for record in stored.records()] == [
        {"v": "x"}, {"z": [{"key": "a", "value": 1}]}, {"v": "y"},
    ]  # fmt: skip
