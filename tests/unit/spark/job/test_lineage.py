"""Events of OpenLineage about a stream: when they come, what they have, and that they fit its JSON schemas."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest

from tailrace.local.ports import free_port
from tailrace_common.sections.sink import Dataset, SourceTable
from tailrace_common.sections.stream import LineageSettings
from tailrace_common.settings import Settings, settings_from
from tailrace_common.settings.sinks import SINK_TYPES
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.batch.delivery import Summary
from tailrace_spark.job.lineage import Lineage, State, TableLineage
from tailrace_spark.job.lineage_events import LineageEvents
from tailrace_spark.job.progress import Progress, TableProgress
from tailrace_spark.job.telling import Telling
from tests.support.clock import ManualClock
from tests.support.openlineage import LineageServer, require_valid
from tests.unit.tables import table

ORDERS = table({"id": "int"}, {"line": "int"}, {"note": "text"}, {"tags": "set<text>"}, keyspace="shop", name="orders")
NOTES = table({"id": "int"}, keyspace="shop", name="notes")
SECRET = "hunter2"  # noqa: S105 - what must not be seen


def of(source: Any, **more: Any) -> TableLineage:
    """A table's lineage."""
    defaults: dict[str, Any] = {
        "topic": Dataset("kafka://k:9092", f"t.{source}"),
        "cassandra": Dataset("cassandra://c:9042", str(source)),
        "target": Dataset("postgres://db:5432", f"shop.public.{source.name}"),
        "shown": source,
    }
    return TableLineage(source=source, **{**defaults, **more})


def sent(transport: LineageSettings, *states: tuple[State, list[TableLineage], str | None]) -> None:
    """Send these events."""
    events = LineageEvents(transport, "t.local", "4.1.1", ends=False)
    for state, tables, error in states:
        events.emit(state, tables, error)
    events.close()


class Told:
    """Events in memory."""

    def __init__(self) -> None:
        self.states: list[tuple[str, dict[str, int], str | None]] = []
        self.closed = False

    def emit(self, state: State, tables: Iterable[TableLineage], error: str | None = None) -> None:
        """Keep it."""
        self.states.append((state, {lineage.source.name: lineage.records for lineage in tables}, error))

    def close(self) -> None:
        """Nothing comes after that."""
        self.closed = True


def wrote(**records: int) -> Progress:
    """A batch that has so many records of tables."""
    tables = {f"shop.{name}": TableProgress(count, 0.0) for name, count in records.items()}
    return Progress(batch=0, records=sum(records.values()), summary=Summary(), tables=tables)


def test_a_run_tells_its_start_its_tables_and_its_end() -> None:
    told, clock, tables = Told(), ManualClock(), [of(ORDERS)]
    lineage = Lineage(told, lambda: tables, clock, 60)
    with lineage.running():
        lineage.wrote(wrote(orders=3))  # soon after the start, which knew the table
        lineage.wrote(wrote(orders=4))
        tables.append(of(NOTES))
        lineage.wrote(wrote(notes=1))  # a table that is new
        lineage.wrote(wrote(orders=1))
        clock.wait(60)
        lineage.wrote(wrote(orders=1))
        lineage.wrote(wrote(notes=5))
    assert told.states == [
        ("start", {"orders": 0}, None),
        ("running", {"orders": 7, "notes": 1}, None),
        ("running", {"orders": 2, "notes": 0}, None),
        ("complete", {"orders": 0, "notes": 5}, None),
    ]
    assert told.closed


@pytest.mark.parametrize(
    ("error", "last"),
    [
        (ServiceError("Kafka does not answer"), ("fail", {"orders": 0}, "Kafka does not answer")),
        (KeyboardInterrupt(), ("abort", {"orders": 0}, None)),
    ],
)
def test_a_run_that_does_not_end_in_order_says_so(error: BaseException, last: object) -> None:
    told = Told()
    lineage = Lineage(told, lambda: [of(ORDERS)], ManualClock(), 60)
    with pytest.raises(type(error)), lineage.running():
        raise error
    assert told.states[-1] == last
    assert told.closed


def test_without_a_transport_nothing_is_asked() -> None:
    telling = Telling(Settings.model_validate({}), "stream", "")
    with telling.running(cast(Any, None), None, cast(Any, None), ()):
        telling.wrote(wrote(orders=3))


def test_every_event_fits_the_schemas_of_openlineage(tmp_path: Path) -> None:
    file = tmp_path / "lineage.jsonl"
    settings = LineageSettings(transport="file", file=file, namespace="prod")
    sent(
        settings,
        ("start", [], None),
        ("running", [of(ORDERS, records=7), of(NOTES, cassandra=None)], None),
        ("fail", [of(NOTES, target=None)], "the sink does not answer"),
        ("complete", [], None),
        ("abort", [], None),
    )
    events = [json.loads(line) for line in file.read_text().splitlines()]
    for event in events:
        require_valid(event)
    assert [event["eventType"] for event in events] == ["START", "RUNNING", "FAIL", "COMPLETE", "ABORT"]
    assert len({event["run"]["runId"] for event in events}) == 1
    assert {(event["job"]["namespace"], event["job"]["name"]) for event in events} == {("prod", "t.local")}
    running = events[1]
    assert [(data["namespace"], data["name"]) for data in running["inputs"]] == [
        ("kafka://k:9092", "t.shop.orders"),
        ("cassandra://c:9042", "shop.orders"),
        ("kafka://k:9092", "t.shop.notes"),
    ]
    topic, source, _ = running["inputs"]
    assert topic["inputFacets"]["inputStatistics"]["rowCount"] == 7
    columns = [(field["name"], field["type"]) for field in source["facets"]["schema"]["fields"]]
    assert columns == [("id", "int"), ("line", "int"), ("note", "text"), ("tags", "set<text>")]
    assert [(data["namespace"], data["name"]) for data in running["outputs"]] == [
        ("postgres://db:5432", "shop.public.orders"),
        ("postgres://db:5432", "shop.public.notes"),
    ]
    assert events[2]["run"]["facets"]["errorMessage"]["message"] == "the sink does not answer"
    assert events[2]["outputs"] == []


def test_a_place_that_several_tables_share_is_one_output(tmp_path: Path) -> None:
    file, exchange = tmp_path / "lineage.jsonl", Dataset("amqp://r:5672", "/changes")
    tables = [of(ORDERS, target=exchange), of(NOTES, target=exchange)]
    sent(LineageSettings(transport="file", file=file), ("running", tables, None))
    event = json.loads(file.read_text())
    require_valid(event)
    assert [(data["name"], data.get("facets", {})) for data in event["outputs"]] == [("/changes", {})]


def test_a_server_gets_events_with_the_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with LineageServer() as server:
        settings = settings_from({"lineage": {"transport": "http", "url": server.url, "api_key": SECRET}}, "test")
        sent(settings.lineage, ("start", [of(ORDERS)], None), ("complete", [of(ORDERS)], None))
    assert [(path, token) for path, token, _ in server.requests] == [("/api/v1/lineage", f"Bearer {SECRET}")] * 2
    for event in server.events:
        require_valid(event)
    assert SECRET not in caplog.text


def test_a_server_that_is_not_there_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    settings = LineageSettings(transport="http", url=f"http://127.0.0.1:{free_port('127.0.0.1')}")
    sent(settings, ("start", [], None), ("complete", [], None))
    words = [record.getMessage() for record in caplog.records if record.name == "tailrace_spark"]
    assert len(words) == 1
    assert words[0].startswith("an event of [lineage] was not sent and is lost; the stream goes on: ")


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"transport": "http"}, "needs url, such as"),
        ({"transport": "http", "url": f"http://u:{SECRET}@h"}, "must be without user and password"),
        ({"transport": "file"}, 'transport = "file" needs file'),
    ],
)
def test_settings_that_do_not_fit_are_refused(section: dict[str, object], words: str) -> None:
    with pytest.raises(SettingsError, match=words) as refused:
        settings_from({"lineage": section}, "test")
    assert SECRET not in str(refused.value)


SINKS: list[tuple[dict[str, Any], tuple[str, str] | None]] = [
    ({"type": "sql", "url": f"postgresql://u:{SECRET}@db/shop"}, ("postgres://db:5432", "shop.public.ks_t")),
    ({"type": "sql", "url": f"postgresql+psycopg://u:{SECRET}@db:5433/shop?sslmode=require", "table": "x_{table}"},
     ("postgres://db:5433", "shop.public.x_t")),
    ({"type": "sql", "url": f"mysql://u:{SECRET}@db/shop"}, ("mysql://db:3306", "shop.ks_t")),
    ({"type": "sql", "url": "sqlite:////var/lib/x.db"}, ("sqlite:///var/lib/x.db", "ks_t")),
    ({"type": "kafka"}, ("kafka://k:9", "changes.ks.t")),
    ({"type": "kafka", "topic": "{prefix}-out.{table}", "kafka": {"bootstrap.servers": "SSL://o:1, p:2"}},
     ("kafka://o:1", "pre-out.t")),
    ({"type": "delta", "path": "s3://bucket/lake"}, ("s3://bucket", "lake/ks.t")),
    ({"type": "files", "path": "/data/changes"}, ("file", "/data/changes/ks.t")),
    ({"type": "iceberg", "path": "/data/lake", "namespace": "raw.c"}, ("file", "/data/lake/raw/c/ks/t")),
    ({"type": "cassandra", "contact_points": ["10.0.0.1"], "keyspace": "copy_{keyspace}"},
     ("cassandra://10.0.0.1:9042", "copy_ks.t")),
    ({"type": "log-tables", "contact_points": ["10.0.0.1"]}, ("cassandra://10.0.0.1:9042", "ks.t_scylla_cdc_log")),
    ({"type": "opensearch", "url": f"https://search/{SECRET}"}, ("opensearch://search:443", "ks.t")),
    ({"type": "http", "url": f"https://hooks/{SECRET}?token={SECRET}"}, ("https://hooks", "changes")),
    ({"type": "rabbitmq", "url": "amqp://rabbit"}, ("amqp://rabbit:5672", "/tailrace.changes")),
    ({"type": "console"}, None),
]  # fmt: skip


@pytest.mark.parametrize(("section", "expected"), SINKS)
def test_sinks_name_what_they_write_by_the_conventions(
    section: dict[str, Any], expected: tuple[str, str] | None
) -> None:
    sink = Settings.model_validate({"sink": {"x": section}}).sink["x"]
    dataset = sink.dataset(SourceTable("ks", "t", "pre", "k:9"))
    assert dataset == (None if expected is None else Dataset(*expected))
    assert SECRET not in str(dataset)


@pytest.mark.parametrize(
    ("section", "before", "longest"),
    [
        ({"type": "sql", "url": "postgresql://db/shop"}, "shop.public.", 63),
        ({"type": "sql", "url": "mariadb://db/shop"}, "shop.", 64),
        ({"type": "kafka"}, "", 249),
        ({"type": "delta", "path": "s3://bucket/lake"}, "lake/", 255),
        ({"type": "files", "path": "/data"}, "/data/", 255),
        ({"type": "iceberg", "path": "/data"}, f"/data/{'k' * 48}/", 255),
        ({"type": "log-tables", "contact_points": ["10.0.0.1"]}, f"{'k' * 48}.", 48),
        ({"type": "cassandra", "contact_points": ["10.0.0.1"], "keyspace": "{keyspace}_copy"}, "", 48 + 1 + 222),
        ({"type": "opensearch", "url": "https://search"}, "", 255),
    ],
)
def test_the_longest_names_are_cut_as_sinks_cut_them(section: dict[str, Any], before: str, longest: int) -> None:
    sink = Settings.model_validate({"sink": {"x": section}}).sink["x"]
    datasets = [sink.dataset(SourceTable("k" * 48, "t" * 221 + last, "pre", "k:9")) for last in "ab"]
    names = {dataset.name.removeprefix(before) for dataset in datasets if dataset is not None}
    assert len(names) == 2
    assert max(map(len, names)) <= longest


def test_every_type_of_sink_is_looked_at() -> None:
    assert {section["type"] for section, _ in SINKS} == SINK_TYPES.keys()
