"""The stream's tasks on a standalone cluster: executors share nothing with the driver, are killed, and fill a table."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
import sqlalchemy as sa

from tailrace.local import LocalKafka
from tailrace.local.process import wait_until
from tests import postgres
from tests.integration.feed import Feed
from tests.integration.test_spark_standalone import run
from tests.services.spark_cluster import SparkCluster, compiled_code
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import Database
from tests.unit.tables import table

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]

PLAIN = table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name="plain")
LOG = Log(PLAIN)
WRITTEN = 5_000_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    with SparkCluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def compiled() -> Path:
    """Where the compiled packages are."""
    return compiled_code()


@pytest.fixture
def feed(kafka: LocalKafka, prefix: str) -> Iterator[Feed]:
    """An empty cluster's topics."""
    feed = Feed(kafka.bootstrap, prefix)
    feed.announce()
    yield feed
    feed.close()


@pytest.fixture
def database() -> Iterator[Database]:
    """A new one, which every machine reaches by TCP."""
    name = sa.make_url(postgres.new_database()).database
    url = f"postgresql://postgres@127.0.0.1:{postgres.port()}/{name}"
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    yield Database(url, engine)
    engine.dispose()


def settings_file(
    directory: Path, kafka: LocalKafka, prefix: str, url: str, spark: Mapping[str, str], batch: int = 100_000
) -> Path:
    file = directory / "tailrace.toml"
    file.write_text(
        f'[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n[topics]\nprefix = "{prefix}"\n'
        f'[stream]\ncheckpoint = "{directory}/checkpoint"\nexecution = "executors"\n'
        f'max_offsets_per_trigger = {batch}\n[sink.local]\nurl = "{url}"\n'
        "[stream.spark]\n" + "".join(f'"{name}" = "{value}"\n' for name, value in spark.items())
    )
    return file


def archive_of(config: Path, compiled: Path) -> Path:
    """What brings executors the compiled packages, with those of the sink of these settings."""
    file = config.with_name("executors.tar.gz")
    tailrace = [sys.executable, "-m", "tailrace_spark"]
    run([*tailrace, "stream", "-c", str(config), "--archive", str(file)], config.parent, compiled)
    return file


@pytest.mark.promise("tasks.attempts")
def test_killed_executors_lose_nothing_and_write_nothing_twice(
    cluster: SparkCluster,
    compiled: Path,
    feed: Feed,
    kafka: LocalKafka,
    prefix: str,
    database: Database,
    tmp_path: Path,
) -> None:
    """kill -9 of each executor in turn while the batches are written; Spark repeats their tasks on others."""
    feed.publish([LOG.insert((number,), (), WRITTEN, v=f"v{number}") for number in range(2_000)])
    feed.publish([LOG.update((number,), (), WRITTEN + 1, v="newer") for number in range(0, 2_000, 3)])
    feed.publish([LOG.delete((number,), (), WRITTEN + 2) for number in range(0, 2_000, 5)])
    archive = archive_of(settings_file(tmp_path, kafka, prefix, database.url, {}), compiled)
    config = settings_file(tmp_path, kafka, prefix, database.url, cluster.driver_settings(archive), batch=500)
    log = tmp_path / "stream.log"
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": f"{compiled}{os.pathsep}{Path.cwd()}"}
    command = [sys.executable, "-m", "tailrace_spark", "stream", "--once", "-c", str(config)]
    killed: set[int] = set()
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=tmp_path, env=environment) as stream,
    ):

        def killed_another() -> bool:
            if stream.poll() is None and _has_rows(database):
                for machine in cluster.workers:
                    for pid in set(machine.executors()) - killed:
                        with suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                            killed.add(pid)
                        return len(killed) >= 3
            return stream.poll() is not None

        assert wait_until(killed_another, 300), log.read_text()
        assert stream.wait(300) == 0, log.read_text()
    assert killed, log.read_text()
    expected = [(number, "newer" if number % 3 == 0 else f"v{number}") for number in range(2_000) if number % 5]
    assert database.select("SELECT id, v FROM shop_plain") == sorted(expected, key=repr)
    assert database.select("SELECT * FROM tailrace_dead_letters") == []
    assert "on executors" in log.read_text()


def _has_rows(database: Database) -> bool:
    return "tailrace_partitions" in database.names() and bool(database.select("SELECT 1 FROM tailrace_partitions"))
