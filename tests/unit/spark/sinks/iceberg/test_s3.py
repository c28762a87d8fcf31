"""Iceberg tables on a real S3 server, known to a catalog in a real PostgreSQL, or Glue; lost requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import sqlalchemy as sa

from tailrace_schemas.errors import ServiceError
from tailrace_spark.sinks.iceberg.settings import IcebergSinkSettings
from tests import postgres, s3
from tests.held import package
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import PLAIN
from tests.unit.spark.sinks.iceberg.stores import NARROW, FollowedIceberg, IcebergHistory, require_followed
from tests.unit.spark.sinks.lake.cutting_contract import CuttingContract
from tests.unit.spark.sinks.lake.history_contract import LakeHistoryContract, two_at_a_time
from tests.unit.spark.sinks.merging_contract import MergingContract, write
from tests.unit.spark.sinks.on_s3 import write_by_section

PASSWORD = "hunter3hunter3"  # noqa: S105 - of no server


def catalog() -> dict[str, str]:
    """A new, empty one."""
    url = sa.make_url(postgres.new_database()).set(password=PASSWORD)
    return {"type": "sql", "uri": url.render_as_string(hide_password=False)}


def section(**more: object) -> IcebergSinkSettings:
    keys = {"endpoint": s3.endpoint(), "region": "us-east-1", "access_key": s3.ACCESS_KEY, "secret_key": s3.SECRET_KEY}
    path = f"s3://{s3.new_bucket()}/a lake"
    return IcebergSinkSettings.model_validate({"path": path, "catalog": catalog(), "buckets": 2, **keys, **more})


@pytest.mark.promise("iceberg.once")
@pytest.mark.long
class TestHistoryOnS3(LakeHistoryContract):
    sink = "iceberg"
    narrow: ClassVar = NARROW

    server_name = f"{package('pyiceberg')}, S3 of {package('moto')}, a catalog in PostgreSQL"

    @pytest.fixture
    def stores(self) -> Callable[[], IcebergHistory]:
        return lambda: IcebergHistory(section())


@pytest.mark.promise("iceberg.current")
@pytest.mark.long
class TestCurrentOnS3(MergingContract):
    sink = "iceberg"

    server_name = f"{package('pyiceberg')}, S3 of {package('moto')}, a catalog in PostgreSQL"

    @pytest.fixture
    def another(self) -> Callable[[], FollowedIceberg]:
        return lambda: FollowedIceberg(section(mode="current"))


@pytest.mark.promise("iceberg.two-writers")
@pytest.mark.long
def test_tables_of_a_glue_catalog_follow_the_source() -> None:
    """Of moto's Glue: of two that write at a time one fails there too."""
    pytest.importorskip("boto3")
    glue = {
        "type": "glue", "glue.endpoint": s3.endpoint(), "glue.region": "us-east-1", "glue.access-key-id": s3.ACCESS_KEY,
        "glue.secret-access-key": s3.SECRET_KEY,
    }  # fmt: skip
    require_followed(FollowedIceberg(section(mode="current", catalog=glue)))
    two_at_a_time(IcebergHistory(section(catalog=glue)), replace(PLAIN, keyspace="other"))


@pytest.mark.promise("iceberg.two-writers")
@pytest.mark.long
def test_of_two_on_s3_one_fails_and_finds_its_batch_done() -> None:
    """By the catalog's own comparison."""
    two_at_a_time(IcebergHistory(section()))


@pytest.mark.promise("iceberg.once", "iceberg.current")
@pytest.mark.long
class TestCutRequests(CuttingContract):
    def new_place(self) -> dict[str, Any]:
        return {"path": f"s3://{s3.new_bucket()}/lake", "catalog": catalog(), "buckets": 1}

    def histories(self, **settings: Any) -> IcebergHistory:
        return IcebergHistory(section(**settings))

    def followed(self, **settings: Any) -> FollowedIceberg:
        return FollowedIceberg(section(mode="current", **settings))


@pytest.mark.slow
def test_a_section_opens_a_sink(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bucket, named = s3.new_bucket(), catalog()
    (tmp_path / "uri").write_text(named["uri"] + "\n")
    of_catalog = f'[sink.x.catalog]\ntype = "sql"\nuri_file = "{tmp_path}/uri"\n'
    write_by_section(tmp_path, caplog, "iceberg", f"{bucket}/a b/", of_catalog, PASSWORD)
    [record] = IcebergHistory(section(path=f"s3://{bucket}/a b", catalog=named)).records()
    assert record["columns"] == {"v": "x"}


@pytest.mark.slow
def test_a_bucket_that_does_not_exist_is_told_in_one_line() -> None:
    followed = FollowedIceberg(section(mode="current", path="s3://no-such-bucket/x"))
    with pytest.raises(ServiceError, match=r"(?i)bucket") as raised:
        write(followed, Log(PLAIN).insert((1,), (), 1, v="a"))
    assert "\n" not in str(raised.value)
    assert s3.SECRET_KEY not in str(raised.value)
