"""Every benchmark runs to its end at a tiny size, with real services of its own, and prints the rows of its table."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from benchmarks.__main__ import BENCHMARKS
from benchmarks.peers.debezium import JAR
from tailrace_common.java.jars import cache_directory, fetch
from tailrace_schemas.errors import TailraceError
from tests import java_sources

ROOT: Final = Path(__file__).resolve().parents[3]
MODULES: Final = ROOT / "benchmarks"
SIZES: Final = {"TAILRACE_BENCH_MUTATIONS": "2000", "TAILRACE_BENCH_CHANGES": "500", "TAILRACE_BENCH_ROUNDS": "1"}
"""Of those that take no arguments."""


def no_debezium() -> str | None:
    """Why its jar cannot be had, or None."""
    try:
        fetch([JAR], cache_directory() / "jars")
    except TailraceError as error:
        return str(error)
    return None


@dataclass(frozen=True, slots=True)
class Run:
    """A module with its arguments, and how the rows of its table begin."""

    command: str
    rows: tuple[str, ...]
    missing: Callable[[], str | None] = lambda: None


RUNS: Final = (
    Run("assign 2 4", ("columns", "scalar", "ratio")),
    Run("rowstate 1000", ("merge", "decode, merge, encode", "images")),
    Run("generations 10 8 2", ("make", "load", "columns: a stream", "token: one by one")),
    Run("delta 1000 1", ("history: each change a row", "current: new rows", "bare deltalake merges")),
    Run("sql 1000 1", ("plain COPY", "new rows", "rows that are there")),
    Run("sinks 0.1", ("| sql, SQLite", "| cassandra", "| kafka, Avro", "| iceberg, current", "| console")),
    Run("cassandra 1000 1", ("tables: new rows", "log tables: new rows", "bare requests")),
    Run("opensearch 1000 1", ("new rows", "rows that are there", "bare _bulk"), java_sources.missing),
    Run("transactions", ("     1  no transactions", "   200  transactions, the agent's policy")),
    Run("decode", ("frames, checksums", "to objects", "to Avro", "most memory to Avro")),
    Run("agent --mutations 2000 --seconds 2", ("tailrace", "Debezium"), no_debezium),
    Run("snapshot 1000", ("plain driver, values only", "ours, as `read` changes", "20,000", "tailrace-snapshot in")),
    Run("snapshot_large rows 1000", ("       1,000 rows",)),
    Run("snapshot_large partition 1", ("       1,024 rows",)),
    Run("snapshot_large copy 1000", ("copied in", "peaks, MiB", "tailrace compare: exit code 0")),
    Run("stream --records 2000 --seconds 2 --warm 2", ("source, decoded by Python", "none", "SQLite")),
    Run("stream.execution --records 2000 --batch 500 --rounds 1 --directory .", ("driver", "executors")),
    Run(
        "stream.jdbc_sink --records 4000 --batch 1000 --rounds 1 --directory .",
        ("Tailrace into PostgreSQL", "Debezium's JDBC sink"),
    ),
    Run("stream.workers --records 2000 --batch 500 --rounds 1 --workers 1 --directory .", ("1 worker(s)",)),
    Run("subscriptions --counts 1 --seconds 2 --warm 0 --burst 50", ("1 ",)),
    Run("sick_sinks --count 3 --down 1 --slow 1 --seconds 2 --warm 0", ("1 ", "down0")),
)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Segments are recorded anew, jars are those that are there."""
    cache, jars = tmp_path_factory.mktemp("cache"), cache_directory() / "jars"
    jars.mkdir(parents=True, exist_ok=True)
    (cache / "jars").symlink_to(jars)
    paths = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT))))
    return {**os.environ, **SIZES, "TAILRACE_CACHE": str(cache), "PYTHONPATH": paths}


@pytest.mark.long
@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.command.partition(" --")[0])
def test_a_tiny_run_prints_its_table(run: Run, environment: dict[str, str], tmp_path: Path) -> None:
    if (trouble := run.missing()) is not None:
        pytest.skip(trouble)
    ended = subprocess.run(
        [sys.executable, "-m", *f"benchmarks.{run.command}".split()],
        cwd=tmp_path,
        env={**environment, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    lines = ended.stdout.splitlines()
    assert [row for row in run.rows if not any(re.match(re.escape(row) + r".*\d", line) for line in lines)] == [], lines


def test_every_benchmark_is_run() -> None:
    """Those with a `main` of their own, and those of `make bench`."""
    run = {command.command.split()[0] for command in RUNS}
    programs = {path for path in MODULES.rglob("*.py") if '__name__ == "__main__"' in path.read_text("utf-8")}
    named = {".".join(path.relative_to(MODULES).with_suffix("").parts).removesuffix(".__main__") for path in programs}
    assert run == named - {"__main__", "segments"}
    assert run.issuperset(BENCHMARKS)
