"""`python -m benchmarks.stream`: rows a second and core through each stage of the stream, and its latency."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.agent.figures import table
from benchmarks.stream.corpus import Cluster, prepared
from benchmarks.stream.sinks import NoSink, drained, late, settings_of
from benchmarks.stream.stages import Cost, measured, stages
from tailrace.local.kafka import KafkaSettings, LocalKafka
from tailrace_spark.job.session import spark_session
from tailrace_spark.sinks.sql.sink import SqlSink

PARTS = ("stages", "sinks", "latency")


def main() -> None:
    """Print a table of each part; `--json FILE` has all figures."""
    given = _arguments()
    print(f"# {os.cpu_count()} cores, Python {platform.python_version()}, {platform.machine()}\n", flush=True)
    place: Path = given.directory or Path(mkdtemp(prefix="tailrace-bench-"))
    place.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {}
    with LocalKafka(place / "kafka", KafkaSettings(heap_mib=1024)) as kafka:
        prefix = "" if given.parts == ["latency"] else prepared(kafka.bootstrap, place, given.records)
        spark = spark_session({"spark.master": f"local[{given.cores}]", "spark.driver.memory": "3g"})
        spark.sparkContext.setLogLevel("ERROR")
        try:
            if "stages" in given.parts:
                figures["stages"] = _stages(spark, kafka.bootstrap, prefix, given)
            if "sinks" in given.parts:
                figures["sinks"] = _sinks(spark, kafka.bootstrap, prefix, given)
            if "latency" in given.parts:
                figures["latency"] = _latency(spark, kafka.bootstrap, given)
        finally:
            spark.stop()
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=1) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stream")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--cores", type=int, default=1, help="Spark's, for stages and sinks")
    parser.add_argument("--rate", type=float, default=200.0, help="rows a second, for the latency")
    parser.add_argument("--seconds", type=float, default=30.0, help="for which they are written")
    parser.add_argument("--warm", type=int, default=300, help="batches before the latency is measured")
    parser.add_argument("--postgresql", metavar="URL", help="an empty database, for sinks and latency")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--only", help="stages with this in their name")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--directory", type=Path, help="where Kafka and its topics stay, so that they are made once")
    return parser.parse_args()


def _stages(spark: SparkSession, bootstrap: str, prefix: str, given: argparse.Namespace) -> dict[str, Any]:
    """Each stage once to warm up, then three times; the median of what it took."""
    found: dict[str, Cost] = {}
    for name, frame in stages(spark, settings_of(bootstrap, prefix, Path("unused"))).items():
        if given.only and given.only not in name:
            continue

        def run(frame: Any = frame) -> None:
            frame.write.format("noop").mode("overwrite").save()

        run()
        costs = [measured(given.records, run) for _ in range(3)]
        found[name] = sorted(costs, key=lambda cost: cost.cpu)[1]
    _show("stage", found)
    return {name: asdict(cost) for name, cost in found.items()}


def _sinks(spark: SparkSession, bootstrap: str, prefix: str, given: argparse.Namespace) -> dict[str, Any]:
    place = Path(mkdtemp(prefix="tailrace-bench-"))
    sinks: dict[str, Callable[[], Any]] = {"none": NoSink, "SQLite": lambda: SqlSink(f"sqlite:///{place}/sink.db")}
    if given.postgresql:
        sinks["PostgreSQL"] = lambda: SqlSink(given.postgresql)
    most = min(50_000, given.records // 4)  # of several batches the first one is not measured
    found: dict[str, Cost] = {}
    for name, opened in sinks.items():
        settings = settings_of(bootstrap, prefix, place / name, max_offsets_per_trigger=most)
        found[name] = drained(spark, settings, opened())
    _show("the stream into", found)
    return {name: asdict(cost) for name, cost in found.items()}


def _latency(spark: SparkSession, bootstrap: str, given: argparse.Namespace) -> dict[str, Any]:
    place = Path(mkdtemp(prefix="tailrace-bench-"))
    urls = {"SQLite": f"sqlite:///{place}/sink.db"}
    if given.postgresql:
        urls["PostgreSQL"] = given.postgresql
    rows, found = [], {}
    for name, url in urls.items():
        cluster = Cluster(bootstrap, f"late{place.name[-6:]}{name.lower()}")
        cluster.make()
        settings = settings_of(bootstrap, cluster.options.prefix, place / name)
        figures, durations = late(spark, settings, url, given.rate, given.seconds, given.warm)
        found[name] = asdict(figures)
        rows.append(
            [name, f"{figures.rows:,}", f"{figures.batches:,}"]
            + [f"{1000 * value:.0f} ms" for value in (figures.p50, figures.p95, figures.p99)]
        )
        found[name]["steps"] = {
            step: median(one.get(step, 0) for one in durations) for step in (durations[-1] if durations else ())
        }
    print(table(["sink", "rows", "batches", "p50", "p95", "p99"], rows), end="\n\n", flush=True)
    for name, one in found.items():
        print(f"{name}, medians of a batch in ms: {one['steps']}", flush=True)
    return found


def _show(head: str, found: dict[str, Cost]) -> None:
    rows = [
        [name, f"{cost.rate:,.0f}", f"{cost.per_core:,.0f}", f"{1e6 * cost.cpu / cost.rows:.2f}"]
        for name, cost in found.items()
    ]
    print(table([head, "rows/s", "rows/s of CPU", "us of CPU a row"], rows), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
