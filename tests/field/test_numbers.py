"""Write times at the ends of 64 bits, which `USING TIMESTAMP` takes: through agent, stream, snapshot, comparison."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import sqlalchemy as sa

from tailrace.local import LocalCassandra, LocalKafka
from tests.field.following import Following, following
from tests.integration.agents import settings_for
from tests.integration.processes import PROGRAM
from tests.integration.streams import StreamProcess
from tests.services.class_archive import quick_java_lines
from tests.unit.spark.sinks.contract import Database
from tests.unit.spark.sinks.hostile import WRITE_TIMES

pytestmark = [pytest.mark.integration, pytest.mark.long]

ROWS: Final = [(number, f"v{number}") for number in range(len(WRITE_TIMES))]


def test_one_write_time_does_not_end_the_stream_of_all_tables(
    cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path
) -> None:
    with following(cassandra, kafka, prefix, keyspace_name, tmp_path) as followed:
        followed.run(
            "CREATE TABLE #.t (id int PRIMARY KEY, v text) WITH cdc = true",
            "CREATE TABLE #.plain (id int PRIMARY KEY, v text) WITH cdc = true",
            "INSERT INTO #.t (id, v) VALUES (0, 'v0') USING TIMESTAMP -9223372036854775807",
            "INSERT INTO #.plain (id, v) VALUES (1, 'a')",
        )
        followed.until("t", [(0, "v0")])
        followed.until("plain", [(1, "a")])
        for number, written in enumerate(WRITE_TIMES):
            followed.run(f"INSERT INTO #.t (id, v) VALUES ({number}, 'v{number}') USING TIMESTAMP {written}")
        followed.until("t", ROWS)
        assert followed.stream.stop() == 0, followed.stream.words()
        followed.stream.start()
        followed.run("INSERT INTO #.plain (id, v) VALUES (2, 'b')")
        followed.until("plain", [(1, "a"), (2, "b")])
        assert "ARITHMETIC_OVERFLOW" not in followed.stream.log.read_text()
        lines = followed.agent.command("tail", f"{keyspace_name}.t", "--from-beginning", "--max", "7").splitlines()
        assert {json.loads(line)["written"] for line in lines} == set(WRITE_TIMES)
        followed.stream.stop()
        assert _snapshot(followed, cassandra, kafka, prefix, tmp_path) == ROWS


def _snapshot(
    followed: Following, cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, directory: Path
) -> list[tuple[object, ...]]:
    """What a stream that begins with a snapshot makes of the table, which a comparison then finds equal."""
    place = directory / "snapshot"
    place.mkdir()
    url = f"sqlite:///{place}/sink.db"
    cluster = settings_for(cassandra, kafka, prefix, followed.keyspace)["cluster"]
    options = {"snapshot": '"only"', "topics": json.dumps(rf"{prefix}\.{followed.keyspace}\.t")}
    sections: dict[str, dict[str, object]] = {"cluster": cluster, "snapshot": {"consistency": "ONE"}}
    with StreamProcess(place, kafka, prefix, url, stream=options, sections=sections) as stream:
        assert stream.ended() == 0, stream.words()
    settings = place / "compare.toml"
    settings.write_text(
        f"[cluster]\ncontact_points = {json.dumps(cluster['contact_points'])}\nport = {cluster['port']}\n"
        f'[sink.local]\nurl = "{url}"\n[stream.spark]\n"spark.master" = "local[1]"\n{quick_java_lines()}'
    )
    words = ("compare", f"{followed.keyspace}.t", "-c", str(settings), "--grace", "0", "--consistency", "one")
    compared = subprocess.run(
        [sys.executable, *PROGRAM, *words], capture_output=True, text=True, timeout=600, check=False
    )
    assert (compared.returncode, compared.stdout) == (0, ""), compared.stderr
    copy = Database(url, sa.create_engine(url))
    rows = copy.select(f"SELECT * FROM {followed.keyspace}_t")
    copy.engine.dispose()
    return rows
