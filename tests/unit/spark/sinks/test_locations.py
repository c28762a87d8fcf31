"""Where a sink writes, as logs, labels and /status say it: of every type without anything that may be a secret."""

from __future__ import annotations

import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tailrace_common.secrets import origin, shown_database
from tailrace_common.sections.sink import SinkSettings
from tailrace_common.settings import Settings
from tailrace_common.settings.sinks import SINK_TYPES
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.batch.delivery import MicroBatch
from tailrace_spark.job.checkpoint import Job, require_own, store_of
from tailrace_spark.job.checkpoint_files import LocalFiles
from tailrace_spark.job.metrics import MetricsServer, StreamMetrics
from tailrace_spark.job.progress import SinkInfo
from tailrace_spark.sinks.registry import open_sink

SECRET = "hunter2"  # noqa: S105 - what must not be seen
FILE = {"access_key": SECRET, "secret_key": SECRET}
CASSANDRA = {"contact_points": ["10.0.0.1"], "username": SECRET, "password": SECRET}

SECTIONS: list[tuple[str, dict[str, Any], str]] = [
    ("sql", {"url": f"postgresql://{SECRET}:{SECRET}@db:5433/shop?password={SECRET}"}, "postgresql://db:5433/shop"),
    ("sql", {"url": f"postgresql://u:a/?b{SECRET}@db/shop"}, "postgresql://db/shop"),
    ("sql", {"url": f"mysql://u:p@{SECRET}@db/shop"}, "mysql://db/shop"),
    ("sql", {"url": f"sqlite:////var/lib/a@b.db?key={SECRET}"}, "sqlite:////var/lib/a@b.db"),
    ("log-tables", CASSANDRA, "10.0.0.1:9042"),
    ("cassandra", CASSANDRA, "10.0.0.1:9042"),
    ("kafka", {"topic": "{table}", "kafka": {"bootstrap.servers": "k:9", "sasl.password": SECRET}},
     "k:9, topics {table}"),
    ("http", {"url": f"https://hooks.example.org:8443/services/{SECRET}?token={SECRET}#{SECRET}",
              "bearer_token": SECRET}, "https://hooks.example.org:8443"),
    ("http", {"url": f"http://[::1]:80/{SECRET}"}, "http://[::1]:80"),
    ("rabbitmq", {"url": "amqps://rabbit/", "username": SECRET, "password": SECRET, "vhost": SECRET},
     "amqps://rabbit, exchange tailrace.changes"),
    ("files", {"path": "s3://bucket/changes", **FILE}, "s3://bucket/changes"),
    ("delta", {"path": "s3://bucket/changes", **FILE}, "s3://bucket/changes"),
    ("iceberg", {"path": "s3://bucket/lake", **FILE, "catalog": {
        "type": "rest", "uri": f"https://{SECRET}@catalog/{SECRET}", "token": SECRET, "s3.secret-access-key": SECRET,
    }}, "s3://bucket/lake"),
    ("opensearch", {"url": f"https://search:9200/{SECRET}", "api_key": SECRET}, "https://search:9200"),
    ("console", {}, "stdout"),
]  # fmt: skip


def section(kind: str, said: dict[str, Any]) -> SinkSettings:
    return Settings.model_validate({"sink": {"x": {"type": kind, **said}}}).sink["x"]


def test_every_type_is_looked_at() -> None:
    assert {kind for kind, *_ in SECTIONS} == SINK_TYPES.keys()


@pytest.mark.promise("sinks.locations")
@pytest.mark.parametrize(("kind", "said", "location"), SECTIONS)
def test_no_location_has_a_secret(kind: str, said: dict[str, Any], location: str, tmp_path: Path) -> None:
    """Nor have the label of the metrics, /status, or what is noted in a checkpoint."""
    found = section(kind, said)
    assert found.location == location
    target = SinkInfo("x", kind, found.location, "", store_of(found.identity))
    metrics = StreamMetrics(target)
    with MetricsServer(metrics, "127.0.0.1", 0) as server:
        for path in ("metrics", "status"):
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/{path}") as answer:
                text = answer.read().decode()
            assert location in text
            assert SECRET not in text
    assert SECRET not in repr(target)
    files = LocalFiles(tmp_path)
    require_own(files, "c", Job(prefix="t", sink=found.location, store=target.store))
    assert SECRET not in (files.read("stream.json") or SECRET)


@pytest.mark.slow
@pytest.mark.promise("sinks.locations")
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("sql", {"url": f"postgresql://{SECRET}:{SECRET}@127.0.0.1:1/x?application_name={SECRET}"}),
        ("http", {"url": f"http://127.0.0.1:1/{SECRET}?{SECRET}"}),
        ("opensearch", {"url": f"http://127.0.0.1:1/{SECRET}", "retry_seconds": 0.01}),
        ("rabbitmq", {"url": "amqp://127.0.0.1:1", "username": SECRET, "password": SECRET}),
    ],
)
def test_who_does_not_answer_is_named_without_secrets(kind: str, said: dict[str, Any]) -> None:
    with closing(open_sink("x", section(kind, said), "t")) as sink:
        with pytest.raises(ServiceError, match=r"127\.0\.0\.1:1") as raised:
            sink.reach()
        assert SECRET not in str(raised.value)


@pytest.mark.parametrize("number", [4, 5, 7, 9, 13], ids=lambda number: SECTIONS[number][0])
def test_what_executors_are_given_shows_no_secret(number: int) -> None:
    kind, said, _ = SECTIONS[number]
    with closing(open_sink("x", section(kind, said), "t")) as sink:
        writer = sink.batch_write(MicroBatch("s", 0, {})).writer
    assert SECRET not in repr(writer) + str(writer)


@pytest.mark.promise("sinks.locations")
def test_a_checkpoint_tells_endpoints_of_one_host_apart(tmp_path: Path) -> None:
    """By a digest."""
    one, other = (section("http", {"url": f"https://h/{path}?x=1"}) for path in (SECRET, "other"))
    jobs = [Job(prefix="t", sink=found.location, store=store_of(found.identity)) for found in (one, other)]
    files = LocalFiles(tmp_path)
    require_own(files, "c", jobs[0])
    require_own(files, "c", jobs[0])
    with pytest.raises(SettingsError, match="is of another sink at https://h, which would lack") as raised:
        require_own(files, "c", jobs[1])
    assert SECRET not in str(raised.value)
    assert SECRET not in (files.read("stream.json") or SECRET)


def test_a_checkpoint_tells_catalogs_and_namespaces_of_one_warehouse_apart() -> None:
    """The tables of one have not what those of another have."""
    database: dict[str, Any] = {"type": "sql", "uri": "postgresql+psycopg://a/x"}
    rest: dict[str, Any] = {"type": "rest", "uri": "https://a"}
    said: list[dict[str, Any]] = [
        {}, {"namespace": "raw"}, {"namespace": "more"}, {"catalog": database}, {"catalog": {**database, "uri": "postgresql+psycopg://a/y"}},
        {"catalog": rest}, {"catalog": {**rest, "warehouse": "b"}}, {"catalog": {**rest, "warehouse": "c"}},
    ]  # fmt: skip
    stores = [store_of(section("iceberg", {"path": "/lake", **one}).identity) for one in said]
    assert len(set(stores)) == len(said)
    assert stores[0] == store_of("/lake")


@pytest.mark.parametrize(
    ("url", "shown"), [("sqlite://", "sqlite://"), ("postgresql:///d?host=a", "postgresql:///d"), ("x", "**********")]
)
def test_databases_without_a_host(url: str, shown: str) -> None:
    assert shown_database(url) == shown


def test_a_port_that_is_none_is_not_shown() -> None:
    assert origin(f"http://h:{SECRET}/x") == "http://h"
