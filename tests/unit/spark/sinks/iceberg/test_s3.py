"""Iceberg tables on a real S3 server, known to a catalog in a real PostgreSQL, or Glue; lost requests."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import ClassVar

import pytest
import sqlalchemy as sa

from tailrace_common.settings import load_settings
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import Piece
from tailrace_spark.sinks.iceberg.settings import IcebergSinkSettings
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.registry import open_sink
from tests import postgres, s3
from tests.held import package
from tests.services.cutting import CuttingProxy
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import PLAIN, Topic, batches, deliver
from tests.unit.spark.sinks.contract import piece
from tests.unit.spark.sinks.iceberg.stores import NARROW, FollowedIceberg, IcebergHistory
from tests.unit.spark.sinks.lake.history_contract import LakeHistoryContract
from tests.unit.spark.sinks.merging_contract import MergingContract, write

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

    @pytest.fixture
    def server(self) -> str:
        return f"{package('pyiceberg')}, S3 of {package('moto')}, a catalog in PostgreSQL"

    @pytest.fixture
    def stores(self) -> Callable[[], IcebergHistory]:
        return lambda: IcebergHistory(section())


@pytest.mark.promise("iceberg.current")
@pytest.mark.long
class TestCurrentOnS3(MergingContract):
    sink = "iceberg"

    @pytest.fixture
    def server(self) -> str:
        return f"{package('pyiceberg')}, S3 of {package('moto')}, a catalog in PostgreSQL"

    @pytest.fixture
    def followed(self) -> FollowedIceberg:
        return FollowedIceberg(section(mode="current"))

    @pytest.fixture
    def another(self) -> Callable[[], FollowedIceberg]:
        return lambda: FollowedIceberg(section(mode="current"))


@pytest.mark.long
def test_tables_on_s3_follow_the_source() -> None:
    _follow(FollowedIceberg(section(mode="current", namespace="raw.lake")))


@pytest.mark.promise("iceberg.two-writers")
@pytest.mark.long
def test_tables_of_a_glue_catalog_follow_the_source() -> None:
    """Of moto's Glue: of two that write at a time one fails there too."""
    pytest.importorskip("boto3")
    glue = {
        "type": "glue", "glue.endpoint": s3.endpoint(), "glue.region": "us-east-1", "glue.access-key-id": s3.ACCESS_KEY,
        "glue.secret-access-key": s3.SECRET_KEY,
    }  # fmt: skip
    _follow(FollowedIceberg(section(mode="current", catalog=glue)))
    _one_of_two_fails(IcebergHistory(section(catalog=glue)), replace(PLAIN, keyspace="other"))


def _follow(followed: FollowedIceberg) -> None:
    log = Log(PLAIN)
    write(followed, log.insert((1,), (), 1, v="a"), log.insert((2,), (), 1, v="b"))
    write(followed, log.update((1,), (), 2, w=5), log.delete((2,), (), 2), log.insert((3,), (), 2, v="c"))
    write(followed, log.update((1,), (), 1, v="late"))
    assert followed.rows(PLAIN, "id", "v", "w") == [(1, "late", 5), (3, "c", None)]
    assert followed.store.names() == ["shop.plain", "shop.plain-state"]
    for name in followed.store.names():
        followed.maintenance.compact(name)
        assert followed.maintenance.expire(name, 0, dry_run=False)["orphans"] == 0
    write(followed, log.update((3,), (), 3, w=7))
    assert followed.rows(PLAIN, "id", "v", "w") == [(1, "late", 5), (3, "c", 7)]


@pytest.mark.promise("iceberg.two-writers")
@pytest.mark.long
def test_of_two_on_s3_one_fails_and_finds_its_batch_done() -> None:
    """By the catalog's own comparison."""
    _one_of_two_fails(IcebergHistory(section()))


def _one_of_two_fails(stored: IcebergHistory, of: Table = PLAIN) -> None:
    topic, log = Topic(), Log(of)
    for number in range(2):
        one = topic.piece(log.insert((0,), (), number, v="x"))

        def overtaken(one: Piece = one) -> Iterator[Piece]:
            yield one
            deliver(stored, one)

        with closing(stored.open()) as sink:
            with pytest.raises(ServiceError, match="another writer came first"):
                write_here(sink, overtaken())
            assert write_here(sink, [one]).rows == 0
    assert stored.rows(f"{of.keyspace}.{of.name}")["offset"].to_pylist() == [0, 1]


@pytest.mark.promise("iceberg.once")
@pytest.mark.long
@pytest.mark.parametrize("before", [True, False], ids=["request", "answer"])
def test_a_history_loses_and_doubles_nothing_with_any_request(before: bool) -> None:
    """By the client's own retries, or by the batch that comes again."""
    for step in count():
        at = {"path": f"s3://{s3.new_bucket()}/lake", "catalog": catalog()}
        stored, [_, batch, _] = IcebergHistory(section(**at)), batches(Topic())
        proxy = CuttingProxy(s3.endpoint(), step, before=before, revives=True)
        through = IcebergHistory(section(**at, endpoint=proxy.endpoint))
        with proxy, closing(through.open()) as sink:
            try:
                write_here(sink, batch)
            except ServiceError:
                write_here(sink, batch)
        assert len(stored.records()) == 9, f"request {step} was lost"
        assert len(through.letters.all) == 1
        if proxy.written < step:
            assert step > 1
            return


@pytest.mark.promise("iceberg.current")
@pytest.mark.long
@pytest.mark.parametrize("before", [True, False], ids=["request", "answer"])
def test_tables_that_follow_lose_nothing_with_any_request(before: bool) -> None:
    """By the client's own retries, or by the batch that comes again."""
    for step in count():
        at, log = {"path": f"s3://{s3.new_bucket()}/lake", "catalog": catalog(), "buckets": 1}, Log(PLAIN)
        followed = FollowedIceberg(section(mode="current", **at))
        write(followed, *(log.insert((number,), (), 1, v=f"{number}") for number in range(3)))
        batch = piece([log.update((0,), (), 2, w=5), log.delete((1,), (), 2), log.insert((4,), (), 2, v="new")])
        proxy = CuttingProxy(s3.endpoint(), step, before=before, revives=True)
        away = FollowedIceberg(section(mode="current", endpoint=proxy.endpoint, **at))
        with proxy, closing(away.open()) as sink:
            try:
                write_here(sink, [batch])
            except ServiceError:
                write_here(sink, [batch])
        rows = followed.rows(PLAIN, "id", "v", "w")
        assert rows == [(0, "0", 5), (2, "2", None), (4, "new", None)], f"request {step} was lost"
        if proxy.written < step:
            assert step > 3
            return


@pytest.mark.slow
def test_a_section_opens_a_sink(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    bucket, named = s3.new_bucket(), catalog()
    (tmp_path / "secret").write_text(s3.SECRET_KEY + "\n")
    (tmp_path / "uri").write_text(named["uri"] + "\n")
    path = tmp_path / "t.toml"
    path.write_text(
        f'[sink.x]\ntype = "iceberg"\npath = "s3://{bucket}/a b/"\nendpoint = "{s3.endpoint()}"\n'
        f'region = "us-east-1"\naccess_key = "{s3.ACCESS_KEY}"\nsecret_key_file = "{tmp_path}/secret"\n'
        f'[sink.x.catalog]\ntype = "sql"\nuri_file = "{tmp_path}/uri"\n'
    )
    settings = load_settings(path, {})
    with closing(open_sink("x", settings.sink["x"], "p")) as sink:
        sink.reach()
        write_here(sink, [Topic().piece(Log(PLAIN).insert((1,), (), 1, v="x"))])
    more = {"path": f"s3://{bucket}/a b", "catalog": named}
    [record] = IcebergHistory(section(**more)).records()
    assert record["columns"] == {"v": "x"}
    shown = json.dumps([caplog.text, repr(settings), settings.sink["x"].location])
    assert not [secret for secret in (s3.SECRET_KEY, s3.ACCESS_KEY, PASSWORD) if secret in shown]


@pytest.mark.slow
def test_a_bucket_that_does_not_exist_is_told_in_one_line() -> None:
    followed = FollowedIceberg(section(mode="current", path="s3://no-such-bucket/x"))
    with pytest.raises(ServiceError, match=r"(?i)bucket") as raised:
        write(followed, Log(PLAIN).insert((1,), (), 1, v="a"))
    assert "\n" not in str(raised.value)
    assert s3.SECRET_KEY not in str(raised.value)
