"""Large tables read by token ranges: the memory of a reader, and a copy of a table that had no cdc at first.

Usage: python -m benchmarks.snapshot_large [rows N | partition MEBIBYTES | copy N]. A node of its own on loopback.

`rows`: N rows of 8 columns, 100 in a partition. `partition`: one partition of 1 KiB rows. A process of its own reads
them once, and prints the most memory that it has had so far, by tenths of the rows.
`copy`: N rows without cdc, which is then set. A stream with `stream.snapshot = "initial"` copies them into PostgreSQL
by tasks while rows are written, and `tailrace compare` reads both sides. Memory is that of the stream's processes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from cassandra import ConsistencyLevel
from cassandra.cluster import Session
from cassandra.concurrent import execute_concurrent
from cassandra.query import BatchStatement, BatchType

from benchmarks.agent.processes import memory_mb_of
from benchmarks.snapshot import fill
from benchmarks.stream.execution import Process, processes_below
from tailrace.local import CassandraSettings, LocalCassandra, LocalKafka
from tailrace_common.build import describe
from tailrace_spark.snapshot.progress import State, snapshots_from_json
from tailrace_spark.snapshot.session import range_reader, survey
from tailrace_spark.snapshot.settings import settings_of
from tests.integration.agents import cql, create_keyspace
from tests.integration.processes import PROGRAM
from tests.integration.snapshot.following import placed
from tests.integration.streams import StreamProcess
from tests.postgres import new_database

_UPDATE: Final = "UPDATE KS.orders SET note = ? WHERE customer = ? AND number = ?"
_NODE: Final = CassandraSettings(
    jmx_port=0, heap_mib=1536, yaml={"write_request_timeout": "60s", "batch_size_fail_threshold": "1MiB"}
)


def main(kind: str, size: int) -> None:
    """Run one of them and print its figures."""
    if kind == "copy":
        _copy(size)
        return
    with TemporaryDirectory() as directory, LocalCassandra(Path(directory) / "cassandra", _NODE) as node:
        with cql(node, seconds=120) as session:
            create_keyspace(session, "bench")
            if kind == "rows":
                fill(session, size)
            else:
                _fill_partition(session, size)
            node.nodetool("flush", "bench")
        print(f"{size:,} {kind}, {describe()}", flush=True)
        rows = size if kind == "rows" else size * 1024
        reader = [sys.executable, "-m", "benchmarks.snapshot_large", "read", node.address, str(node.port), str(rows)]
        subprocess.run(reader, check=True)


def _fill_partition(session: Session, mebibytes: int) -> None:
    """Rows of 1 KiB each in one partition; the values are no two the same."""
    session.execute("CREATE TABLE bench.orders (customer text, number int, note text, PRIMARY KEY (customer, number))")
    insert = session.prepare("INSERT INTO bench.orders (customer, number, note) VALUES ('the one', ?, ?)")

    def batches() -> Iterator[tuple[BatchStatement, None]]:
        for first in range(0, mebibytes * 1024, 40):
            batch = BatchStatement(BatchType.UNLOGGED, consistency_level=ConsistencyLevel.ONE)
            for row in range(first, min(mebibytes * 1024, first + 40)):
                batch.add(insert, (row, f"{row:032x}" * 32))
            yield batch, None

    execute_concurrent(session, batches(), concurrency=16)


def read(host: str, port: str, total: int) -> None:
    """Read the table once in this process, and print what it takes."""
    options = {"contact_points": host, "port": port, "consistency": "LOCAL_ONE", "table": "bench.orders"}
    survey_now = survey(settings_of(options, {}))
    shape, splits = survey_now.reading.shape, survey_now.splits()
    print(f"{len(splits)} ranges; {memory_mb_of():.0f} MiB before", flush=True)
    rows, tenths, began = 0, 0, time.perf_counter()
    with range_reader(survey_now.reading, 1) as reader:
        for page in reader.pages(splits):
            rows += shape.batch(page.parsed).num_rows
            if rows * 10 // total > tenths:
                tenths = rows * 10 // total
                rate = rows / (time.perf_counter() - began)
                print(f"{rows:>12,} rows  {rate:>8,.0f} a second  peak {memory_mb_of():.0f} MiB", flush=True)
    if rows != total:
        raise SystemExit(f"{rows:,} rows instead of {total:,}")


class _Processes:
    """The most memory of a stream's processes by kind, and their seconds of CPU, looked at twice a second."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._over = threading.Event()
        self._cpu: dict[int, tuple[str, float]] = {}
        self.peaks: dict[str, int] = {}
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.5):
            sums: Counter[str] = Counter()
            for process in processes_below({self._root}):
                kind = self._kind(process)
                sums[kind] += process.memory >> 20
                self._cpu[process.pid] = kind, process.cpu
            for kind, mebibytes in sums.items():
                self.peaks[kind] = max(self.peaks.get(kind, 0), mebibytes)

    def _kind(self, process: Process) -> str:
        if process.pid == self._root:
            return "driver's Python"
        return "tasks' Python" if "pyspark.daemon" in process.command else "Java"

    def end(self) -> dict[str, float]:
        """Look no more; the seconds of CPU by kind."""
        self._over.set()
        self._thread.join()
        sums: Counter[str] = Counter()
        for kind, seconds in self._cpu.values():
            sums[kind] += seconds  # type: ignore[assignment]  # a Counter adds seconds as well
        return {kind: round(seconds, 1) for kind, seconds in sums.items()}


@contextmanager
def _writes(session: Session, keyspace: str, rows: int) -> Iterator[list[int]]:
    """A hundred statements a second or so into the table, until the end of the `with`; how many there were."""
    update = session.prepare(_UPDATE.replace("KS.", f"{keyspace}."))
    over, count = threading.Event(), [0]

    def write() -> None:
        while not over.wait(0.01):
            row = count[0] * 7919 % rows
            session.execute(update, (f"written {count[0]}", f"customer {row // 100}", row))
            count[0] += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield count
    finally:
        over.set()
        thread.join()


def _copy(rows: int) -> None:
    with TemporaryDirectory() as name, LocalCassandra(Path(name) / "cassandra", _NODE) as node:
        directory = Path(name)
        with LocalKafka(directory / "kafka") as kafka, placed(node, kafka, directory) as place:
            fill(place.session, rows, place.keyspace)
            place.run("ALTER TABLE KS.orders WITH cdc = true")
            node.nodetool("flush", place.keyspace)
            print(f"{rows:,} rows are there, without cdc until now; {describe()}", flush=True)
            url = new_database()
            sections = place.sections("orders")
            settings = {
                "starting_offsets": '"latest"', "snapshot": '"initial"', "execution": '"executors"', "metrics_port": 0,
                "topics": json.dumps(rf"{place.prefix}\.{place.keyspace}\.orders"),
            }  # fmt: skip
            shown = {"cluster": sections["cluster"], "snapshot": {"consistency": "ONE"}}
            began = time.perf_counter()
            stream = StreamProcess(
                directory, kafka, place.prefix, url, stream=settings, sections=shown, master="local[2]", memory="1g"
            )
            with stream:
                with _writes(place.session, place.keyspace, rows) as count:
                    watched = _Processes(stream.process.pid)
                    stream.until(lambda: _is_done(directory), 7200)
                    passed = time.perf_counter() - began
                    seconds = watched.end()
                print(f"copied in {passed:,.0f} s, {rows / passed:,.0f} rows a second; {count[0]:,} writes meanwhile")
                print(f"peaks, MiB: {watched.peaks}\nCPU seconds: {seconds}", flush=True)
                _compare(directory, place.keyspace)


def _is_done(directory: Path) -> bool:
    states = []
    for file in (directory / "checkpoint" / "tailrace").glob("snapshots-?.json"):
        try:
            value = snapshots_from_json(file.read_text())
        except (OSError, ValueError):
            continue
        states.append((value.sequence, [table.state for table in value.tables]))
    return bool(states) and max(states)[1] == [State.DONE]


def _compare(directory: Path, keyspace: str) -> None:
    """Print what `tailrace compare` says, and its time."""
    began = time.perf_counter()
    command = [sys.executable, *PROGRAM, "compare", f"{keyspace}.orders", "-c", str(directory / "stream.toml")]
    ended = subprocess.run([*command, "--consistency", "one"], capture_output=True, text=True, check=False)
    print(
        f"tailrace compare: exit code {ended.returncode}, {time.perf_counter() - began:,.0f} s\n{ended.stdout[-2000:]}"
    )
    print("\n".join(line for line in ended.stderr.splitlines() if "WARN" not in line)[-1500:], flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "read":
        read(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main(sys.argv[1], int(sys.argv[2]))
