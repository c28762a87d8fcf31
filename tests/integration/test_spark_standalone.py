"""Jobs on a standalone cluster of two workers that share no directory, user or Python with the driver."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import sqlalchemy as sa

from tailrace.local import LocalKafka
from tests.integration.compiled import run
from tests.integration.feed import Feed
from tests.services.spark_cluster import SparkCluster, compiled_code
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import Database
from tests.unit.tables import table

pytestmark = pytest.mark.timeout(900)

DRIVER = "tests.integration.cluster_driver"
ROWS = 40
PLAIN = table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name="plain")


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    with SparkCluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def compiled() -> Path:
    """Where the compiled packages are."""
    return compiled_code()


@pytest.fixture(scope="module")
def archive(compiled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What brings executors the compiled packages."""
    directory = tmp_path_factory.mktemp("archive")
    file = directory / "executors.tar.gz"
    tailrace = [sys.executable, "-c", "from tailrace.cli.main import run; run()"]
    run([*tailrace, "stream", "--archive", str(file)], directory, compiled)
    return file


@pytest.fixture(autouse=True)
def feed(feed: Feed) -> Feed:
    """Rows of one table, in both partitions of its topic."""
    feed.publish([Log(PLAIN).insert((number,), (), 5_000_000, v=f"v{number}") for number in range(ROWS)])
    return feed


def settings_file(directory: Path, kafka: LocalKafka, prefix: str, spark: Mapping[str, str]) -> Path:
    file = directory / "tailrace.toml"
    file.write_text(
        f'[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n[topics]\nprefix = "{prefix}"\n'
        f'[stream]\nsnapshot = "never"\ncheckpoint = "{directory}/checkpoint"\n'
        f'[sink.local]\nurl = "sqlite:///{directory}/sink.db"\n'
        "[stream.spark]\n" + "".join(f'"{name}" = "{value}"\n' for name, value in spark.items())
    )
    return file


def test_executors_run_compiled_code_of_the_archive(
    cluster: SparkCluster, archive: Path, compiled: Path, kafka: LocalKafka, prefix: str, tmp_path: Path
) -> None:
    config = settings_file(tmp_path, kafka, prefix, cluster.driver_settings(archive))
    shown = run([sys.executable, "-m", DRIVER, "changes", "shop.plain", str(config)], tmp_path, compiled)
    changes = [json.loads(line) for line in shown.splitlines()]
    assert sorted(change["value"] for change in changes) == sorted(f"v{number}" for number in range(ROWS))
    assert {(change["op"], len(change["stream_id"]), tuple(change["marks"])) for change in changes} == {
        ("insert", 32, ("late",))
    }
    workers = {change["worker"]["directory"]: change["worker"] for change in changes}
    assert len(workers) == 2, workers
    for machine in cluster.workers:
        [worker] = [about for folder, about in workers.items() if folder.startswith(f"{machine.directory}/work/")]
        assert worker["user"] == (os.geteuid() if cluster.user is None else cluster.user)
        assert worker["python"] == str(machine.directory / "python")
        assert worker["compiled"] > 50
        assert worker["merge"].startswith(f"{worker['directory']}/ours/tailrace_spark/merge/row.cpython-")


@pytest.mark.promise("spark.merged")
def test_rows_are_merged_on_executors(
    cluster: SparkCluster, archive: Path, compiled: Path, feed: Feed, kafka: LocalKafka, prefix: str, tmp_path: Path
) -> None:
    log = Log(PLAIN)
    feed.publish([log.update((0,), (), 6_000_000, v="new"), log.delete((1,), (), 6_000_000)])
    config = settings_file(tmp_path, kafka, prefix, cluster.driver_settings(archive))
    shown = run([sys.executable, "-m", DRIVER, "merged", "shop.plain", str(config)], tmp_path, compiled)
    rows = sorted((row["id"], row["v"]) for row in map(json.loads, shown.splitlines()))
    assert rows == [(0, "new"), *[(number, f"v{number}") for number in range(2, ROWS)]]


@pytest.mark.promise("spark.caller-decides")
def test_spark_submit_starts_the_stream_and_its_options_hold(
    cluster: SparkCluster, compiled: Path, kafka: LocalKafka, prefix: str, tmp_path: Path
) -> None:
    config = settings_file(tmp_path, kafka, prefix, {"spark.master": "local[1]", "spark.sql.shuffle.partitions": "3"})
    jars = run([sys.executable, "-m", "tailrace_spark", "stream", "--jars"], tmp_path, compiled).strip()
    name = f"submitted {prefix}"
    options = {**cluster.driver_settings(), "spark.app.name": name}
    submit = [str(Path(sys.executable).with_name("spark-submit")), "--jars", jars]
    submit += [word for option, value in options.items() for word in ("--conf", f"{option}={value}")]
    main = str(compiled / "tailrace_spark" / "__main__.py")
    # spark-submit passes on both outputs of its Python as its own standard output.
    output = run([*submit, main, "stream", "--once", "-c", str(config)], tmp_path, compiled)
    assert "spark-submit has set spark.master: its value in [stream.spark] is ignored" in output
    engine = sa.create_engine(f"sqlite:///{tmp_path}/sink.db")
    rows = Database(str(engine.url), engine).select("SELECT id, v FROM shop_plain")
    engine.dispose()
    assert sorted(rows) == [(number, f"v{number}") for number in range(ROWS)]
    [application] = [app for app in cluster.master.state()["completedapps"] if app["name"] == name]
    assert application["state"] == "FINISHED"
    assert application["cores"] == len(cluster.workers)
