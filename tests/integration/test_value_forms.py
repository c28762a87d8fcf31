"""The forms of [avro] from a node to a database: mixed in one topic, equal to SELECT, and as stock readers see them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pytest
from cassandra.cluster import Session
from pyspark.sql.avro.functions import from_avro

import tailrace_spark
from tailrace.local import LocalCassandra, LocalKafka
from tailrace_schemas.avro import Encoder
from tailrace_schemas.forms import ValueForms
from tailrace_spark.job.stream import Stream
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.integration.agents import (
    AgentProcess,
    Published,
    cql,
    create_keyspace,
    published,
    settings_for,
    start_here,
)
from tests.integration.stream_settings import stream_settings
from tests.oracle.comparison import Downstream, ask, differences
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECIPE: Final = Path(__file__).parents[2] / "examples" / "consume_without_tailrace.py"
FORMS: Final[tuple[dict[str, str], ...]] = (
    {},
    {"timestamps": "logical", "uuids": "fixed", "decimals": "bytes"},
)
ROWS: Final = 6
FAR: Final = 2**62
"""A timestamp that no reader of calendars takes; Cassandra's driver for Python takes none either."""
LAST_DAY: Final = 2**32 - 1
"""The last date, as Cassandra writes it without a sign."""


@dataclass(frozen=True, slots=True)
class Mixed:
    """A keyspace whose topics have rows of an agent of each of the forms, and one more row of each in `far`."""

    session: Session
    keyspace: str
    check: str


@pytest.fixture
def mixed(
    cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path
) -> Iterator[Mixed]:
    """One agent after another, each with its forms, of the same node and prefix."""
    settings = settings_for(cassandra, kafka, prefix, keyspace_name)
    with cql(cassandra) as session:
        create_keyspace(session, keyspace_name)
        start_here(session, cassandra, kafka, prefix, keyspace_name)
        create(session, keyspace_name)
        told = ""
        for turn, forms in enumerate(FORMS):
            with AgentProcess(tmp_path, settings | {"avro": dict[str, object](forms)}, f"agent{turn}") as agent:
                agent.until_covered()
                write(session, keyspace_name, turn)
                topics = f"{prefix}.{keyspace_name}.t", f"{prefix}.{keyspace_name}.far"
                agent.until(lambda: len(changes_in(kafka, prefix, topics[1])) == turn + 1)  # noqa: B023 - it is called here
                agent.until(lambda: last_row(turn) in keys_of(changes_in(kafka, prefix, topics[0])))  # noqa: B023
                told = agent.command("check", "--only", "kafka")
                assert agent.stop() == 0, agent.words()
        yield Mixed(session, keyspace_name, told)


def create(session: Session, keyspace: str) -> None:
    """Values of every type that has forms, wherever one can stand."""
    session.execute(f"CREATE TYPE {keyspace}.price (id uuid, amount decimal, since timestamp)")
    session.execute(
        f"CREATE TABLE {keyspace}.t (id uuid, at timestamp, n varint, day date, s decimal static, "
        "one timeuuid, exact decimal, big varint, moment timestamp, clock time, d date, "
        "l list<decimal>, m map<uuid, frozen<list<varint>>>, dates set<date>, whole frozen<price>, parts price, "
        "pair frozen<tuple<timestamp, uuid, varint>>, PRIMARY KEY ((id, at), n, day)) WITH cdc = true"
    )
    session.execute(f"CREATE TABLE {keyspace}.far (at timestamp PRIMARY KEY, day date, v int) WITH cdc = true")


def write(session: Session, keyspace: str, turn: int) -> None:
    """Rows of this turn, edits and deletions of those before it, a row that no calendar has, and a last one."""
    for row in range(turn * ROWS, (turn + 1) * ROWS):
        session.execute(f"INSERT INTO {keyspace}.t JSON %s", (json.dumps(values(row)),))
    for row in range(turn * ROWS):
        partition = f"WHERE id = {UUID(int=row)} AND at = {row * 1000}"
        whole = f"{partition} AND n = {-(7**row)} AND day = {2**31 - row}"
        match row % 4:
            case 0:
                session.execute(f"DELETE FROM {keyspace}.t {whole}")
            case 1:
                session.execute(f"DELETE FROM {keyspace}.t {partition} AND n < 0")
            case 2:
                session.execute(f"UPDATE {keyspace}.t SET s = {turn} {partition}")
                edits = f"l = l + [{turn}.25], m[{UUID(int=900 + turn)}] = [{turn}], parts.amount = {turn}.125"
                session.execute(f"UPDATE {keyspace}.t SET {edits} {whole}")
    session.execute(f"INSERT INTO {keyspace}.far (at, day, v) VALUES ({FAR + turn}, {LAST_DAY}, {turn})")
    row = 1000 + turn
    session.execute(f"INSERT INTO {keyspace}.t (id, at, n, day) VALUES ({UUID(int=row)}, {row * 1000}, {row}, {2**31})")


def values(row: int) -> dict[str, object]:
    """The columns of a row, as Cassandra takes them in JSON; its dates are days, which it writes without a sign."""
    own = str(UUID(int=row))
    price = {"id": own, "amount": f"{row}.00", "since": moment(-row)}
    return {
        "id": own, "at": moment(row * 1000), "n": -(7**row), "day": str(2**31 - row), "s": f"{row}.50",
        "one": f"50554d6e-29bb-11e5-b345-feff819cdc{row:02}", "exact": f"-1E-{row}", "big": 3 ** (20 * row),
        "moment": moment(1_700_000_000_000 + row), "clock": "12:00:00.000000001", "d": str(2**31 + row * 150_000),
        "l": [f"{row}.1", -row], "m": {own: [row, -(2**90)]},
        "dates": [f"2024-02-{row + 1:02}", str(2**31 - 719_162 + row)],
        "whole": price, "parts": price, "pair": [moment(row), own, row],
    }  # fmt: skip


def moment(milliseconds: int) -> str:
    """A timestamp of so many milliseconds since 1970."""
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def changes_in(kafka: LocalKafka, prefix: str, topic: str) -> list[Published]:
    return published(kafka, prefix, topic)


def keys_of(records: list[Published]) -> set[bytes]:
    return {record.change.key or b"" for record in records}


def last_row(turn: int) -> bytes:
    """The partition key of the row that a turn ends with."""
    row = 1000 + turn
    parts = (UUID(int=row).bytes, (row * 1000).to_bytes(8, "big"))
    return b"".join(len(part).to_bytes(2, "big") + part + b"\0" for part in parts)


def recipe(kafka: LocalKafka, prefix: str, topic: str, lines: int) -> list[dict[str, Any]]:
    """What confluent-kafka and fastavro alone make of a topic."""
    command = [sys.executable, str(RECIPE), kafka.bootstrap, prefix, topic, "--max", str(lines)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.promise("avro-forms.same-values")
@pytest.mark.timeout(600)
def test_all_forms_in_one_topic_reach_the_database_and_stock_readers(
    spark: SparkSession, kafka: LocalKafka, prefix: str, mixed: Mixed, tmp_path: Path
) -> None:
    """A setting that changed between restarts: the stream's database shows what SELECT answers, the typed DataFrame has
    plain values, plain fastavro gets past every record, our decoder has the exact bytes, and `check` names both forms.
    """
    topic, far = (f"{prefix}.{mixed.keyspace}.{name}" for name in ("t", "far"))
    records, extremes = published(kafka, prefix, topic), published(kafka, prefix, far)
    settings = stream_settings(kafka, prefix, {"checkpoint": str(tmp_path / "checkpoint")})
    url = f"sqlite:///{tmp_path / 'sink.db'}"
    with closing(SqlSink(url)) as sink:
        Stream(spark, settings, sink).run(availableNow=True)
    with closing(Downstream(url)) as database:
        (answer,) = ask(mixed.session, [records[0].change.table])
        assert answer.counts["rows"] > ROWS * len(FORMS) / 2
        assert differences([answer], database) == []
        assert database.set_aside() == []

    keys = {record.change.key for record in extremes}
    assert keys == {(FAR + turn).to_bytes(8, "big") for turn in range(len(FORMS))}
    days = [cell.value for record in extremes for cell in record.change.cells if cell.column.name == "day"]
    assert days == [b"\xff" * 4] * len(FORMS)

    frame = tailrace_spark.changes(spark, settings, f"{mixed.keyspace}.far", options={"startingOffsets": "earliest"})
    query = frame.writeStream.format("memory").queryName(f"far_{prefix}").trigger(availableNow=True).start()
    query.awaitTermination()
    rows = spark.table(f"far_{prefix}").collect()
    assert sorted((row["columns"]["v"], row["key"]["at"], row["columns"]["day"]) for row in rows) == [
        (0, FAR, 2**31 - 1), (1, None, None),
    ]  # fmt: skip
    raw = {item["column"]: bytes(item["bytes"]) for row in rows for item in row["raw"] or ()}
    assert raw == {"at": (FAR + 1).to_bytes(8, "big"), "day": b"\xff" * 4}

    lines = [line for line in recipe(kafka, prefix, topic, len(records)) if "op" in line]
    assert len(lines) == len(records)
    ids = {line["key"]["id"] for line in lines if line["op"] == "insert"}
    assert {str(UUID(int=0)), UUID(int=ROWS).hex} <= ids
    formed = next(line for line in lines if line["key"]["id"] == UUID(int=ROWS).hex and line["columns"]["exact"])
    assert formed["key"]["at"] == "1970-01-01 00:00:06+00:00"
    assert formed["columns"]["exact"] == {"scale": ROWS, "value": "ff"}
    assert formed["columns"]["moment"] == "2023-11-14 22:13:20.006000+00:00"
    assert formed["columns"]["big"] == (3 ** (20 * ROWS)).to_bytes(24, "big").hex()
    stock = recipe(kafka, prefix, far, len(extremes))
    assert {line["key"]["at"] for line in stock if "op" in line} == {FAR, None}

    (check,) = (row for row in map(json.loads, mixed.check.splitlines()) if row["name"] == "avro")
    assert check["detail"].startswith(f'both: decimals = "string" in {topic}; timestamps = "plain" in {far}, {topic};')
    assert "give all agents the same [avro]" in check["advice"]


def test_javas_avro_reads_every_form(spark: SparkSession) -> None:
    """By Spark's from_avro, with the published schema: calendar values, 16 bytes, and a record for a decimal; a value
    that no calendar has is null."""
    of = table({"id": "uuid"}, {"at": "timestamp"}, regular={"big": "varint", "d": "date", "exact": "decimal"})
    encoder = Encoder(of, "t", forms=ValueForms("logical", "fixed", "bytes"))
    log = Log(of)
    changes = [
        log.insert((str(UUID(int=7)),), (at,), 1_000_000, big="-129", d=day, exact="5.00")
        for at, day in ((6_000, 19_000), (FAR, 2**31 - 1))
    ]
    frame = spark.createDataFrame([(encoder.value(change)[10:],) for change in changes], "body binary")
    rows = frame.select(from_avro("body", encoder.schema_text).alias("change")).collect()
    (first, far) = (row["change"] for row in rows)
    assert bytes(first["key"]["id"]) == UUID(int=7).bytes
    assert first["key"]["at"].timestamp() == 6
    columns = first["columns"]
    assert (bytes(columns["big"]), columns["d"]) == (b"\xff\x7f", date(2022, 1, 8))
    assert (columns["exact"]["scale"], bytes(columns["exact"]["value"])) == (2, b"\x01\xf4")
    assert (far["key"]["at"], far["columns"]["d"]) == (None, None)
    assert sorted(item["column"] for item in far["raw"]) == ["at", "d"]
