"""`tailrace snapshot start` as a process that is killed, and another one that goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from cassandra.cluster import Session
from cassandra.concurrent import execute_concurrent_with_args

from tailrace.local import LocalKafka
from tailrace_common.settings import Settings
from tailrace_schemas.change import Op
from tailrace_schemas.tokens import partition as partition_of
from tailrace_spark.snapshot.publishing import SnapshotRecords
from tests.integration.agents import Published, published
from tests.integration.processes import PROGRAM
from tests.services.class_archive import quick_java_lines
from tests.support.waiting import until

ROWS = 3000


def assert_once(records: Sequence[Published], partitions: int = 3) -> None:
    rows = Counter((record.change.key, record.change.clustering, record.change.static) for record in records)
    assert [row for row, count in rows.items() if count > 1] == []
    assert {record.change.op for record in records} == {Op.READ}
    assert all(record.partition == partition_of(record.change.token, partitions) for record in records)


def fill(session: Session, keyspace: str, rows: int = ROWS) -> str:
    """A table of few wide partitions, so that pages and commands end within them."""
    session.execute(f"CREATE TABLE {keyspace}.t (k int, c int, s text STATIC, v text, PRIMARY KEY (k, c))")
    insert = session.prepare(f"INSERT INTO {keyspace}.t (k, c, s, v) VALUES (?, ?, ?, ?)")
    execute_concurrent_with_args(session, insert, [(row % 10, row, f"s{row % 10}", f"v{row}") for row in range(rows)])
    return f"{keyspace}.t"


class Command:
    """`tailrace snapshot start` as a process."""

    def __init__(self, directory: Path, settings: Settings, table: str, *options: str) -> None:
        kafka = settings.kafka.reveal()["bootstrap.servers"]
        config = directory / "tailrace.toml"
        config.write_text(
            f'[cluster]\ncontact_points = ["{settings.cluster.contact_points[0]}"]\nport = {settings.cluster.port}\n'
            f'[kafka]\n"bootstrap.servers" = "{kafka}"\n[topics]\nprefix = "{settings.topics.prefix}"\npartitions = 3\n'
            '[stream.spark]\n"spark.master" = "local[2]"\n"spark.driver.memory" = "512m"\n'
            f"{quick_java_lines()}"
        )
        command = (
            *(sys.executable, *PROGRAM, "snapshot", "start", table, "--to", "kafka", "-c", str(config)),
            *("--consistency", "one", *options),
        )
        self._printed = directory / f"{time.monotonic_ns()}.out"
        self._log = self._printed.with_suffix(".log")
        with self._printed.open("w") as printed, self._log.open("w") as log:
            self.process = subprocess.Popen(command, stdout=printed, stderr=log, env={**os.environ})

    def words(self) -> str:
        return self._log.read_text()

    def lines(self) -> list[dict[str, Any]]:
        """What it printed, when it has ended as it should."""
        assert self.process.wait(600) == 0, self.words()
        return [json.loads(line) for line in self._printed.read_text().splitlines()]


def kill_in_the_middle(command: Command, settings: Settings) -> str:
    """kill -9 once some rows are out; the id of the snapshot. The topics have to be there."""
    with closing(SnapshotRecords(settings.kafka.reveal(), settings.topics.prefix)) as records:

        def some_is_out() -> bool:
            records.read()
            changes = sum(entry.changes for ranges in records.ranges.values() for entry in ranges.values())
            return changes > 200 or command.process.poll() is not None

        until(some_is_out, "some rows of the snapshot", 120, state=command.words)
        assert command.process.poll() is None, command.words()
        command.process.kill()
        command.process.wait()
        [snapshot] = records.snapshots
    return snapshot


def finish(command: Command, settings: Settings, kafka: LocalKafka, table: str, snapshot: str) -> None:
    """Wait for the end of a command that goes on with the snapshot of one that was killed: each row is there once."""
    prefix = settings.topics.prefix
    assert 0 < len(published(kafka, prefix, f"{prefix}.{table}")) < ROWS
    [line] = command.lines()[-1:]
    assert (line["snapshot"], line["done"]) == (snapshot, line["ranges"])
    assert line["changes"] == ROWS + 10
    assert "goes on" in command.words()
    topic = published(kafka, prefix, f"{prefix}.{table}")
    assert_once(topic)
    rows = {(record.change.key, record.change.clustering) for record in topic if not record.change.static}
    assert len(rows) == ROWS
    assert len(topic) == ROWS + 10
