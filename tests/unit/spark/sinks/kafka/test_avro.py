"""What the Kafka sink writes as Avro, read by fastavro under the schemas that were registered; no registry needed."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Any, Final
from uuid import UUID

import pytest

from tailrace_common.settings import Settings
from tailrace_schemas.avro.schema import KeyChoice
from tailrace_schemas.change import Change
from tailrace_schemas.errors import SchemaRefusedError, SettingsError
from tailrace_schemas.streams import Assignment
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import RecordId
from tailrace_spark.batch.row_image import Imaged, ImageMaker
from tailrace_spark.rowstate.partition import Partition
from tailrace_spark.sinks.changelog.sink import OutgoingRecord, RecordForm
from tailrace_spark.sinks.kafka.avro import AvroChanges, AvroWriters, change_schema
from tailrace_spark.sinks.kafka.debezium import DebeziumForm
from tailrace_spark.sinks.kafka.json_format import event_headers
from tailrace_spark.sinks.kafka.settings import KafkaSinkSettings
from tailrace_spark.sinks.registry import open_sink
from tests.unit.spark.cassandra import Log, truncate
from tests.unit.spark.sinks.kafka.ids import Ids
from tests.unit.tables import table

TOPIC: Final = "changes.shop.t"
PLACE: Final = RecordId("t.shop.t", 2, 7, b"\x01\x02\x03\x04\x05\x06\x07\x08")
STREAM: Final = Assignment(1_000, bytes(15) + b"\x01")


def record_of(change: Change) -> OutgoingRecord:
    return OutgoingRecord(PLACE, change, STREAM, RecordForm(change.table))


def written(ids: Ids, change: Change, key: KeyChoice = "primary") -> tuple[Any, Any]:
    """Key and value as a consumer reads them."""
    form, record = AvroChanges(AvroWriters(ids), "shop-cluster", key), record_of(change)
    value, found = form.value(TOPIC, record), form.key(TOPIC, record)
    return None if found is None else ids.read(found), ids.read(value)


U: Final = "11111111-0000-4000-8000-000000000000"
EVERY: Final[list[tuple[str, object, object]]] = [
    ("boolean", True, True),
    ("tinyint", -128, -128),
    ("smallint", 32767, 32767),
    ("int", -(2**31), -(2**31)),
    ("bigint", 2**63 - 1, 2**63 - 1),
    ("float", 0.5, 0.5),
    ("double", float("inf"), float("inf")),
    ("text", "grüße", "grüße"),
    ("ascii", "a", "a"),
    ("inet", "::1", "::1"),
    ("varint", str(2**70), str(2**70)),
    ("decimal", "1.10", "1.10"),
    ("blob", b"\x00\xff", b"\x00\xff"),
    ("uuid", U, UUID(U)),
    ("timeuuid", U.replace("-4", "-1"), UUID(U.replace("-4", "-1"))),
    ("timestamp", 1_700_000_000_123, datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)),
    ("date", 19_000, date(2022, 1, 8)),
    ("time", 86_399_999_999_999, 86_399_999_999_999),
    ("duration", {"months": 1, "days": 2, "nanoseconds": 3}, {"months": 1, "days": 2, "nanoseconds": 3}),
    ("frozen<list<date>>", [19_000, -1], [date(2022, 1, 8), date(1969, 12, 31)]),
    ("frozen<map<int, text>>", [{"key": 1, "value": "a"}], [{"key": 1, "value": "a"}]),
    ("frozen<tuple<uuid, text>>", {"f0": U, "f1": None}, {"f0": UUID(U), "f1": None}),
    ("vector<float, 2>", [0.5, 1.0], [0.5, 1.0]),
]


@pytest.mark.promise("avro.compatible")
@pytest.mark.parametrize(("cql", "value", "expected"), EVERY)
def test_every_type_reads_by_its_logical_type(cql: str, value: object, expected: object) -> None:
    of = table({"k": "int"}, regular={"v": cql}, keyspace="shop")
    key, found = written(Ids(), Log(of).insert((1,), (), 10, v=value))
    assert key == {"k": 1}
    assert found["columns"] == {"v": expected}
    assert (found["op"], found["topic"], found["partition"], found["offset"]) == ("insert", "t.shop.t", 2, 7)
    assert (found["schema"], found["generation"], found["stream_id"]) == (PLACE.schema_id, *STREAM)
    if cql == "duration":
        return
    keyed = table({"k": cql}, keyspace="shop")
    key, _ = written(Ids(), Log(keyed).insert((value,), (), 10))
    assert key == {"k": expected}


FAR: Final = [("timestamp", 253_402_300_800_000), ("timestamp", -(2**63)), ("date", 2_932_897), ("date", -719_163)]


@pytest.mark.promise("avro.compatible")
@pytest.mark.parametrize(("cql", "far"), FAR)
@pytest.mark.parametrize(
    ("form", "value"),
    [
        ("{}", "{far}"), ("frozen<list<{}>>", ["{far}"]), ("frozen<map<int, {}>>", [{"key": 1, "value": "{far}"}]),
        ("frozen<map<{}, int>>", [{"key": "{far}", "value": 1}]), ("frozen<tuple<int, {}>>", {"f0": 1, "f1": "{far}"}),
        ("map<text, {}>", {"a": "{far}"}), ("list<{}>", {"1": "{far}"}), ("set<{}>", {"{far}": ""}),
        ("map<{}, int>", {"{far}": 1}),
    ],
)  # fmt: skip
def test_a_time_that_readers_have_no_year_for_is_null_and_its_bytes_are_there(
    cql: str, far: int, form: str, value: Any
) -> None:
    """No reader stumbles over it, and none loses it: keys of elements are in their paths."""

    def put(some: Any) -> Any:
        if isinstance(some, dict):
            return {put(key): put(item) for key, item in some.items()}
        return [put(item) for item in some] if isinstance(some, list) else far if some == "{far}" else some

    of = table({"k": "int"}, regular={"v": form.format(cql), "w": "int"}, keyspace="shop")
    change = Log(of).update((1,), (), 10, v=put(value), w=5)
    _, found = written(Ids(), change)
    assert found["columns"]["w"] == 5
    [cell] = [one for one in change.cells if one.column.name == "v"]
    whole = found["columns"]["v"]
    if cell.path is None:
        assert whole is None
        assert found["raw"] == [{"column": "v", "path": None, "where": "value", "bytes": cell.value}]
        return
    [item] = whole["set"]
    assert item["path"] == cell.path
    if "key" in item and item["key"] is None:
        assert found["raw"] is None
    else:
        assert item["value"] is None
        assert found["raw"] == [{"column": "v", "path": cell.path, "where": "value", "bytes": cell.value}]


def test_keys_and_bounds_that_readers_have_no_year_for() -> None:
    of = table({"p": "date"}, {"c": "timestamp"}, regular={"v": "int"}, keyspace="shop")
    key, value = written(Ids(), Log(of).insert((2_932_897,), (0,), 10, v=1))
    assert (key["p"], value["key"]["p"]) == (None, None)
    assert [(one["column"], one["where"]) for one in value["raw"]] == [("p", "key")]
    key, value = written(Ids(), Log(of).delete_range((0,), (2**62,), (2**63 - 1,), 10))
    assert [(one["column"], one["where"]) for one in value["raw"]] == [("c", "start"), ("c", "end")]
    assert (value["range"]["start"]["count"], value["range"]["start"]["c"]) == (1, None)


def test_keys_are_as_the_sink_says_and_a_truncation_has_none() -> None:
    of = table({"p": "int"}, {"c": "uuid"}, regular={"v": "int"}, keyspace="shop")
    change = Log(of).insert((1,), (U,), 10, v=1)
    assert written(Ids(), change, "partition")[0] == {"p": 1}
    assert written(Ids(), change)[0] == {"p": 1, "c": UUID(U)}
    truncation = truncate(of, "a", 5)
    key, value = written(Ids(), truncation)
    assert (key, value["op"], value["written"]) == (None, "truncate", 5)


@pytest.mark.promise("avro.compatible")
def test_a_column_that_comes_or_goes_renames_no_type_of_another() -> None:
    """What a registry's rules do not allow: a record's name changes."""
    columns = {"b": "frozen<map<int, text>>", "d": "frozen<tuple<int, int>>"}
    narrow = table({"k": "int"}, regular=columns, keyspace="shop")
    wide = table({"k": "int"}, regular={"a": columns["b"], **columns, "c": columns["d"]}, keyspace="shop")

    def types(of: Table) -> dict[str, object]:
        fields = {field["name"]: field for field in change_schema(of, "p")["fields"]}
        return {field["name"]: field["type"] for field in fields["columns"]["type"]["fields"]}

    assert {name: kind for name, kind in types(wide).items() if name in columns} == types(narrow)


@pytest.mark.promise("avro.refused", "files.once")
def test_what_is_refused_is_asked_for_once_in_each_batch() -> None:
    ids = Ids(refused=f"{TOPIC}-value")
    writers = AvroWriters(ids)
    form = AvroChanges(writers, "p", "partition")
    of = table({"k": "int"}, keyspace="shop")
    record = record_of(Log(of).insert((1,), (), 10))
    for batches in (1, 2):
        writers.begin()
        for _ in range(3):
            with pytest.raises(SchemaRefusedError, match="breaks"):
                form.value(TOPIC, record)
        assert len(ids.asked) == batches
    ids.refused = ""
    writers.begin()
    assert ids.read(form.value(TOPIC, record))["op"] == "insert"
    asked = len(ids.asked)
    form.value(TOPIC, record)
    assert len(ids.asked) == asked


def test_debeziums_schemas_are_those_of_confluents_converter() -> None:
    of = table({"k": "int"}, regular={"2 v": "timestamp", "b": "blob", "t": "tinyint"}, keyspace="shop", name="t")
    log, ids, partition, maker = Log(of), Ids(), Partition(), ImageMaker(of)
    first = log.insert((1,), (), 10, **{"2 v": 5, "b": b"\x00\xff"})
    form = DebeziumForm("p", lambda *_: 0, writer=AvroWriters(ids).connect)
    [event] = form.events(TOPIC, first, PLACE, Imaged(of, maker.of(partition, first, 0)))
    assert ids.read(event.key) == {"k": 1}
    value = ids.read(event.value)
    assert (value["before"], value["after"]) == (None, {"k": 1, "_x32__x20_v": 5, "b": b"\x00\xff", "t": None})
    assert (value["op"], value["source"]["table"]) == ("c", "t")
    envelope = json.loads(ids.schemas[1])
    assert (envelope["name"], envelope["connect.name"], envelope["connect.version"]) == (
        "changes.shop.t.Envelope", "changes.shop.t.Envelope", 2,
    )  # fmt: skip
    fields = {field["name"]: field["type"] for field in envelope["fields"]}
    assert fields["after"] == ["null", "changes.shop.t.Value"]
    row = {field["name"]: field["type"] for field in fields["before"][1]["fields"]}
    assert row["_x32__x20_v"] == [
        "null", {"type": "long", "connect.version": 1, "connect.name": "io.debezium.time.Timestamp"},
    ]  # fmt: skip
    assert row["t"] == ["null", {"type": "int", "connect.type": "int8"}]
    gone = log.delete((1,), (), 20)
    deleted, tombstone = form.events(TOPIC, gone, PLACE, Imaged(of, maker.of(partition, gone, 0)))
    assert ids.read(deleted.value)["before"] == value["after"]
    assert (ids.read(tombstone.key), tombstone.value) == ({"k": 1}, None)
    assert ids.asked == [f"{TOPIC}-key", f"{TOPIC}-value"]


def test_an_events_attributes_are_headers() -> None:
    of = table({"k": "int"}, keyspace="shop", name="t")
    record = record_of(Log(of).insert((1,), (), 1_760_000_000_000_000))
    assert dict(event_headers(record, "application/avro")) == {
        "ce_specversion": b"1.0",
        "ce_id": b"2/7",
        "ce_source": b"/tailrace/t.shop.t",
        "ce_type": b"tailrace.change.insert",
        "ce_subject": b"shop.t",
        "ce_time": b"2025-10-09T08:53:20+00:00",
        "content-type": b"application/avro",
    }
    far = record_of(Log(of).insert((1,), (), 2**62))
    assert "ce_time" not in dict(event_headers(far, "application/json"))


def test_the_registrys_password_is_nowhere_shown() -> None:
    settings = KafkaSinkSettings.model_validate(
        {"encoding": "avro", "registry": {"url": "http://registry", "basic.auth.user.info": "ann:geheim"}}
    )
    assert "geheim" not in repr(settings)
    assert settings.registry.reveal()["basic.auth.user.info"] == "ann:geheim"


def test_a_setting_that_the_registrys_client_refuses_is_named() -> None:
    given = {"url": "http://registry", "max.retries": "many", "basic.auth.user.info": "ann:geheim"}
    section = {"type": "kafka", "encoding": "avro", "registry": given}
    settings = Settings.model_validate({"sink": {"out": section}})
    with pytest.raises(SettingsError, match=r"\[sink\.out\.registry\].*[Mm]ax.retries") as caught:
        open_sink("out", settings.sink["out"], "t")
    assert "geheim" not in str(caught.value)
