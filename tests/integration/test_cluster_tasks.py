"""The stream on a standalone cluster: executors share nothing with the driver, are killed, and fill a table."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa

from tailrace.local import LocalKafka
from tests import postgres
from tests.integration.compiled import run
from tests.integration.feed import Feed
from tests.integration.letters import letters_in
from tests.services.spark_cluster import SparkCluster, compiled_code
from tests.support.waiting import until
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
def database() -> Iterator[Database]:
    """A new one, which every machine reaches by TCP."""
    name = sa.make_url(postgres.new_database()).database
    with closing(Database(f"postgresql+psycopg://postgres@127.0.0.1:{postgres.port()}/{name}")) as database:
        yield database


@dataclass(frozen=True)
class Killing:
    """A stream on the cluster, whose executors are killed in turn while the batches are written."""

    cluster: SparkCluster
    compiled: Path
    kafka: LocalKafka
    prefix: str
    directory: Path

    def into(self, database: Database) -> None:
        """Stream into a database."""
        sink = f'url = "{database.url}"'
        archive = self._archive(self._settings(sink, {}))
        config = self._settings(sink, self.cluster.driver_settings(archive), batch=500)
        log = self.directory / "stream.log"
        path = f"{self.compiled}{os.pathsep}{Path.cwd()}"
        environment = {**os.environ, "TMPDIR": str(self.directory), "PYTHONPATH": path}
        command = [sys.executable, "-m", "tailrace_spark", "stream", "--once", "-c", str(config)]
        killed: set[int] = set()
        with (
            log.open("wb") as output,
            subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, cwd=self.directory, env=environment
            ) as stream,
        ):

            def killed_another() -> bool:
                if stream.poll() is None and _has_rows(database):
                    for machine in self.cluster.workers:
                        for pid in set(machine.executors()) - killed:
                            with suppress(ProcessLookupError):
                                os.kill(pid, signal.SIGKILL)
                                killed.add(pid)
                            return len(killed) >= 3
                return stream.poll() is not None

            until(killed_another, "three killed executors, or the stream's end", 300, state=log.read_text)
            assert stream.wait(300) == 0, log.read_text()
        assert killed, log.read_text()
        assert "on executors" in log.read_text()

    def _settings(self, sink: str, spark: Mapping[str, str], batch: int = 100_000) -> Path:
        file = self.directory / "tailrace.toml"
        file.write_text(
            f'[kafka]\n"bootstrap.servers" = "{self.kafka.bootstrap}"\n[topics]\nprefix = "{self.prefix}"\n'
            f'[stream]\nsnapshot = "never"\ncheckpoint = "{self.directory}/checkpoint"\nexecution = "executors"\n'
            f"max_offsets_per_trigger = {batch}\nonce_wait_seconds = 300\n[sink.local]\n{sink}\n"
            "[stream.spark]\n" + "".join(f'"{name}" = "{value}"\n' for name, value in spark.items())
        )
        return file

    def _archive(self, config: Path) -> Path:
        """What brings executors the compiled packages, with those of the sink of these settings."""
        file = config.with_name("executors.tar.gz")
        tailrace = [sys.executable, "-m", "tailrace_spark"]
        run([*tailrace, "stream", "-c", str(config), "--archive", str(file)], config.parent, self.compiled)
        return file


@pytest.fixture
def killing(cluster: SparkCluster, compiled: Path, kafka: LocalKafka, prefix: str, tmp_path: Path) -> Killing:
    return Killing(cluster, compiled, kafka, prefix, tmp_path)


def publish(feed: Feed) -> list[tuple[int, str]]:
    """Rows that are inserted, updated and deleted; those that are left, by id."""
    feed.publish([LOG.insert((number,), (), WRITTEN, v=f"v{number}") for number in range(2_000)])
    feed.publish([LOG.update((number,), (), WRITTEN + 1, v="newer") for number in range(0, 2_000, 3)])
    feed.publish([LOG.delete((number,), (), WRITTEN + 2) for number in range(0, 2_000, 5)])
    return [(number, "newer" if number % 3 == 0 else f"v{number}") for number in range(2_000) if number % 5]


@pytest.mark.promise("tasks.attempts")
def test_killed_executors_lose_nothing_and_write_nothing_twice(
    killing: Killing, feed: Feed, database: Database
) -> None:
    """kill -9 of each executor in turn while the batches are written; Spark repeats their tasks on others."""
    expected = publish(feed)
    killing.into(database)
    assert database.select("SELECT id, v FROM shop_plain") == sorted(expected, key=repr)
    assert letters_in(killing.kafka, killing.prefix) == []


def _has_rows(database: Database) -> bool:
    return "tailrace_partitions" in database.names() and bool(database.select("SELECT 1 FROM tailrace_partitions"))


@pytest.mark.promise("spark.caller-decides")
def test_spark_submit_starts_the_stream_and_its_options_hold(
    cluster: SparkCluster, compiled: Path, kafka: LocalKafka, prefix: str, feed: Feed, tmp_path: Path
) -> None:
    expected = publish(feed)
    config, name = tmp_path / "tailrace.toml", f"submitted {prefix}"
    config.write_text(
        f'[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n[topics]\nprefix = "{prefix}"\n'
        f'[stream]\nsnapshot = "never"\ncheckpoint = "{tmp_path}/checkpoint"\n'
        f'[sink.local]\nurl = "sqlite:///{tmp_path}/sink.db"\n'
        '[stream.spark]\n"spark.master" = "local[1]"\n"spark.sql.shuffle.partitions" = "3"\n'
    )
    jars = run([sys.executable, "-m", "tailrace_spark", "stream", "--jars"], tmp_path, compiled).strip()
    options = {**cluster.driver_settings(), "spark.app.name": name}
    submit = [str(Path(sys.executable).with_name("spark-submit")), "--jars", jars]
    submit += [word for option, value in options.items() for word in ("--conf", f"{option}={value}")]
    main = str(compiled / "tailrace_spark" / "__main__.py")
    # spark-submit passes on both outputs of its Python as its own standard output.
    output = run([*submit, main, "stream", "--once", "-c", str(config)], tmp_path, compiled)
    assert "spark-submit has set spark.master: its value in [stream.spark] is ignored" in output
    with closing(Database(f"sqlite:///{tmp_path}/sink.db")) as database:
        rows = database.select("SELECT id, v FROM shop_plain")
    assert sorted(rows) == sorted(expected)
    [application] = [app for app in cluster.master.state()["completedapps"] if app["name"] == name]
    assert application["state"] == "FINISHED"
    assert application["cores"] == len(cluster.workers)
