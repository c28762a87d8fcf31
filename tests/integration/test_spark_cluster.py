"""The stream and a job of one's own on executors in other processes, whose Python has none of our packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from tailrace.local import LocalKafka
from tests import postgres
from tests.integration.feed import Feed
from tests.services.class_archive import quick_java_lines
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import Database
from tests.unit.tables import table

pytestmark = pytest.mark.long

EXAMPLE = Path(__file__).parents[2] / "examples" / "stream_to_console.py"
PLAIN = table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name="plain")
BARE = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(autouse=True)
def feed(feed: Feed) -> Feed:
    """Five rows of one table."""
    feed.publish([Log(PLAIN).insert((number,), (), 5_000_000, v=f"v{number}") for number in range(5)])
    return feed


def run(command: list[str], directory: Path) -> str:
    """The output of a command that ends well; its Java and executors have ended too."""
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=directory,
        timeout=600,
        env={**os.environ, "TMPDIR": str(directory)},
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.timeout(1200)
def test_executors_need_nothing_of_ours_but_the_archive(kafka: LocalKafka, prefix: str, tmp_path: Path) -> None:
    bare = subprocess.run([BARE, "-I", "-c", "import pyarrow"], capture_output=True, check=False)
    if bare.returncode == 0 or sys.prefix == sys.base_prefix:
        pytest.skip(f"{BARE} has packages of its own: run this from a virtual environment")
    tailrace = [sys.executable, "-c", "from tailrace.cli.main import run; run()"]
    archive, config = tmp_path / "executors.tar.gz", tmp_path / "tailrace.toml"
    run([*tailrace, "stream", "--archive", str(archive)], tmp_path)
    head = (
        f'[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n[topics]\nprefix = "{prefix}"\n'
        f'[stream]\nsnapshot = "never"\ncheckpoint = "{tmp_path}/checkpoint"\n'
        f'[sink.local]\nurl = "sqlite:///{tmp_path}/sink.db"\n'
        '[stream.spark]\n"spark.master" = "local-cluster[2,1,1024]"\n"spark.driver.memory" = "512m"\n'
        f"{quick_java_lines()}"
        f'"spark.pyspark.python" = "{BARE}"\n"spark.pyspark.driver.python" = "{sys.executable}"\n'
    )
    # The stream itself runs no Python on executors.
    config.write_text(f'{head}"spark.executorEnv.PYTHONPATH" = "/nowhere"\n')
    run([*tailrace, "stream", "--once", "-c", str(config)], tmp_path)
    engine = sa.create_engine(f"sqlite:///{tmp_path}/sink.db")
    found = Database(str(engine.url), engine).select("SELECT id, v FROM shop_plain")
    engine.dispose()
    assert sorted(found) == [(number, f"v{number}") for number in range(5)]
    config.write_text(f'{head}"spark.archives" = "{archive}#ours"\n"spark.executorEnv.PYTHONPATH" = "ours"\n')
    shown = run([sys.executable, str(EXAMPLE), "-c", str(config), "--once", "--table", "shop.plain"], tmp_path)
    for number in range(5):
        assert f"v{number}" in shown


@pytest.mark.timeout(1200)
def test_tasks_whose_python_lacks_our_packages_say_what_to_do(kafka: LocalKafka, prefix: str, tmp_path: Path) -> None:
    bare = subprocess.run([BARE, "-I", "-c", "import pyarrow"], capture_output=True, check=False)
    if bare.returncode == 0 or sys.prefix == sys.base_prefix:
        pytest.skip(f"{BARE} has packages of its own: run this from a virtual environment")
    config = tmp_path / "tailrace.toml"
    config.write_text(
        f'[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n[topics]\nprefix = "{prefix}"\n'
        f'[stream]\nsnapshot = "never"\ncheckpoint = "{tmp_path}/checkpoint"\nexecution = "executors"\n'
        f'[sink.local]\nurl = "{postgres.new_database()}"\n'
        '[stream.spark]\n"spark.master" = "local-cluster[1,1,1024]"\n"spark.driver.memory" = "512m"\n'
        f"{quick_java_lines()}"
        f'"spark.pyspark.python" = "{BARE}"\n"spark.pyspark.driver.python" = "{sys.executable}"\n'
        '"spark.executorEnv.PYTHONPATH" = "/nowhere"\n'
    )
    tailrace = [sys.executable, "-c", "from tailrace.cli.main import run; run()"]
    ended = subprocess.run(
        [*tailrace, "stream", "--once", "-c", str(config)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=600,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=False,
    )
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "the executors' Python has no module" in ended.stderr, ended.stderr[-3000:]
    assert "tailrace stream --archive FILE" in ended.stderr
