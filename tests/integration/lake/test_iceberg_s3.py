"""Iceberg tables on a real S3 server, known to a catalog in a real PostgreSQL; credentials; what is half configured."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest
import sqlalchemy as sa

from tailrace_common.settings import load_settings
from tailrace_common.settings.sinks.iceberg import IcebergSinkSettings
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.batch.delivery import Piece
from tailrace_spark.sinks.registry import jars_of, open_sink
from tests import postgres, s3
from tests.held import package
from tests.integration.lake.iceberg import ICEBERG_VERSION, NARROW, FollowedIceberg, IcebergHistory
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import PLAIN, Topic, deliver
from tests.unit.spark.sinks.lake.history_contract import LakeHistoryContract
from tests.unit.spark.sinks.merging_contract import write

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

PASSWORD = "hunter3hunter3"  # noqa: S105 - of no server


def catalog() -> dict[str, str]:
    """A new, empty one."""
    database = sa.make_url(postgres.new_database()).database
    uri = f"jdbc:postgresql://127.0.0.1:{postgres.port()}/{database}"
    return {"type": "jdbc", "uri": uri, "jdbc.user": "postgres", "jdbc.password": PASSWORD}


def section(**more: object) -> IcebergSinkSettings:
    keys = {"endpoint": s3.endpoint(), "region": "us-east-1", "access_key": s3.ACCESS_KEY, "secret_key": s3.SECRET_KEY}
    path = f"s3://{s3.new_bucket()}/a lake"
    return IcebergSinkSettings.model_validate({"path": path, "catalog": catalog(), "buckets": 2, **keys, **more})


@pytest.mark.long
class TestHistoryOnS3(LakeHistoryContract):
    sink = "iceberg"
    narrow: ClassVar = NARROW

    @pytest.fixture
    def server(self) -> str:
        return f"Iceberg {ICEBERG_VERSION}, S3 of {package('moto')}, a catalog in PostgreSQL"

    @pytest.fixture
    def stores(self, spark: SparkSession) -> Callable[[], IcebergHistory]:
        return lambda: IcebergHistory(section(), spark)


@pytest.mark.long
def test_tables_on_s3_follow_the_source(spark: SparkSession) -> None:
    followed, log = FollowedIceberg(section(mode="current", namespace="raw.lake"), spark), Log(PLAIN)
    write(followed, log.insert((1,), (), 1, v="a"), log.insert((2,), (), 1, v="b"))
    write(followed, log.update((1,), (), 2, w=5), log.delete((2,), (), 2), log.insert((3,), (), 2, v="c"))
    write(followed, log.update((1,), (), 1, v="late"))
    assert followed.rows(PLAIN, "id", "v", "w") == [(1, "late", 5), (3, "c", None)]
    assert followed.store.names() == ["shop.plain", "shop.plain-state"]
    for name in followed.store.names():
        followed.store.compact(name)
        assert followed.store.expire(name, 0, dry_run=False)["orphans"] == 0
    write(followed, log.update((3,), (), 3, w=7))
    assert followed.rows(PLAIN, "id", "v", "w") == [(1, "late", 5), (3, "c", 7)]


@pytest.mark.long
def test_of_two_on_s3_one_fails_and_finds_its_batch_done(spark: SparkSession) -> None:
    """By the catalog's own comparison."""
    stored, topic, log = IcebergHistory(section(), spark), Topic(), Log(PLAIN)
    for number in range(2):
        one = topic.piece(log.insert((0,), (), number, v="x"))

        def overtaken(one: Piece = one) -> Iterator[Piece]:
            yield one
            deliver(stored, one)

        with closing(stored.open()) as sink:
            with pytest.raises(ServiceError, match="another writer came first"):
                sink.write(overtaken())
            assert sink.write([one]).rows == 0
    assert [record["offset"] for record in stored.records()] == [0, 1]


@pytest.mark.long
def test_a_section_opens_a_sink(tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "tailrace_spark")  # what `tailrace` logs at most; py4j tells all that it is told
    bucket, named = s3.new_bucket(), catalog()
    (tmp_path / "secret").write_text(s3.SECRET_KEY + "\n")
    (tmp_path / "password").write_text(PASSWORD + "\n")
    path = tmp_path / "t.toml"
    path.write_text(
        f'[sink.x]\ntype = "iceberg"\npath = "s3://{bucket}/a b/"\nendpoint = "{s3.endpoint()}"\n'
        f'region = "us-east-1"\naccess_key = "{s3.ACCESS_KEY}"\nsecret_key_file = "{tmp_path}/secret"\n'
        f'[sink.x.catalog]\ntype = "jdbc"\nuri = "{named["uri"]}"\njdbc.user = "postgres"\n'
        f'jdbc.password_file = "{tmp_path}/password"\n'
    )
    settings = load_settings(path, {})
    assert jars_of(settings.sink["x"]) == ("iceberg", "iceberg-s3", "postgresql")
    with closing(open_sink("x", settings.sink["x"], "p", session=lambda: spark)) as sink:
        sink.reach()
        sink.write([Topic().piece(Log(PLAIN).insert((1,), (), 1, v="x"))])
    more = {"path": f"s3://{bucket}/a b", "catalog": named}
    [record] = IcebergHistory(section(**more), spark).records()
    assert record["columns"] == {"v": "x"}
    said = json.dumps([caplog.text, repr(settings), settings.sink["x"].location])
    assert not [secret for secret in (s3.SECRET_KEY, s3.ACCESS_KEY, PASSWORD) if secret in said]


@pytest.mark.long
@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"path": "s3://no-such-bucket/x"}, "bucket"),
        ({"catalog": {"type": "jdbc", "uri": "jdbc:postgresql://127.0.0.1:1/x", "jdbc.password": PASSWORD}}, "refused"),
        ({"catalog": {"catalog-impl": "no.such.Catalog"}}, r"no\.such\.Catalog"),
    ],
)
def test_what_cannot_be_reached_is_told_in_one_line_without_credentials(
    spark: SparkSession, wrong: dict[str, object], reason: str
) -> None:
    followed = FollowedIceberg(section(mode="current", **wrong), spark)
    with pytest.raises(ServiceError, match=reason) as raised:
        write(followed, Log(PLAIN).insert((1,), (), 1, v="a"))
    said = str(raised.value)
    assert "\n" not in said
    assert not [secret for secret in (s3.SECRET_KEY, s3.ACCESS_KEY, PASSWORD) if secret in said]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", 'sink.x.path is not set; give path = "/var/lib/tailrace/lake" or the like'),
        ('path = "gs://bucket/x"', "path is a directory or begins with s3://, unlike gs://bucket/x"),
        ('path = "s3://bucket/x"', "catalog is not set: on S3 one has to tell which commit came first"),
        ('path = "a"\ncatalog.uri = "http://x"', "catalog needs one of type and catalog-impl"),
        ('path = "a"\n[sink.x.catalog]\ntype = "jdbc"\nwarehouse = "x"', "catalog.warehouse is not yours to set"),
        ('path = "a"\nnamespace = "a..b"', "namespace must be names with dots between them"),
        ('path = "a"\naccess_key = "hunter2"', "access_key and secret_key are given both or not at all"),
        ('path = "a"\nmode = "future"', "sink.x.mode"),
    ],
)
def test_half_configured_it_is_refused(tmp_path: Path, lines: str, message: str) -> None:
    path = tmp_path / "t.toml"
    path.write_text(f'[sink.x]\ntype = "iceberg"\n{lines}\n', encoding="utf-8")
    with pytest.raises(SettingsError) as raised:
        load_settings(path, {})
    assert message in str(raised.value)
    assert "hunter2" not in str(raised.value)
