"""Debezium's events: what Kafka Connect's JsonConverter reads of them, type by type, and which changes give which."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import pytest

from tailrace_schemas.change import Change, Op
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.errors import UnsupportedError
from tailrace_schemas.tokens import token
from tailrace_spark.batch.delivery import RecordId
from tailrace_spark.batch.row_image import Imaged, ImageMaker
from tailrace_spark.rowstate.partition import Partition
from tailrace_spark.sinks.kafka.debezium import DebeziumForm, connect_type
from tailrace_spark.sinks.kafka.json_format import KafkaRecord
from tailrace_spark.sinks.kafka.outlet import KafkaTarget
from tailrace_spark.sinks.kafka.settings import STATIC, KafkaSinkSettings
from tests.unit.spark.cassandra import Log
from tests.unit.spark.changes import column
from tests.unit.spark.sinks.hostile import LONG_NAMES
from tests.unit.tables import table

TOPIC = "changes.shop.cart"
PLACE = RecordId("t.shop.cart", 2, 7)
CART = table(
    {"customer": "text"}, {"line": "int"}, {"note": "text"}, {"amount": "int", "tags": "set<text>"},
    keyspace="shop", name="cart", table_id=UUID(int=5),
)  # fmt: skip
LOG = Log(CART)
K = ("ann",)
NUMBERS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def read(message: bytes | None) -> Any:
    """What JsonConverter (schemas.enable) makes of a record: None of a tombstone, else the value that its schema has.

    Fails where it would: a value of another type, a number beyond its type, null where none may be.
    """
    if message is None:
        return None
    whole = json.loads(message)
    assert list(whole) == ["schema", "payload"]
    return checked(whole["schema"], whole["payload"], "value")


def checked(schema: dict[str, Any], value: Any, where: str) -> Any:
    kind = schema["type"]
    if value is None:
        assert schema["optional"], f"{where} is null and may not be"
        return None
    if kind == "struct":
        assert {field["field"] for field in schema["fields"]} == {*value}, where
        return {field["field"]: checked(field, value[field["field"]], field["field"]) for field in schema["fields"]}
    if kind in NUMBERS:
        assert type(value) is int, where
        assert -(1 << NUMBERS[kind] - 1) <= value < 1 << NUMBERS[kind] - 1, where
    elif kind in ("float", "double"):
        assert isinstance(value, float | int), where
    elif kind == "bytes":
        return base64.b64decode(value, validate=True)
    else:
        assert type(value) is {"string": str, "boolean": bool}[kind], where
    return value


def schema_of(message: bytes | None) -> Any:
    return json.loads(message or b"")["schema"]


def by_token(_topic: str, token: int) -> int:
    """So that tests see whose partition a record is for."""
    return token


def events(*changes: Change, tombstones: bool = True) -> list[KafkaRecord]:
    """The events of changes of one partition, in order."""
    form, partition, maker = (
        DebeziumForm("shop-cluster", by_token, tombstones=tombstones),
        Partition(),
        ImageMaker(CART),
    )
    return [
        event
        for change in changes
        for event in form.events(TOPIC, change, PLACE, Imaged(CART, maker.of(partition, change, 0)))
    ]


def words(found: list[KafkaRecord]) -> list[tuple[Any, ...]]:
    """(key, op, before, after); a tombstone is (key,)."""
    told: list[tuple[Any, ...]] = []
    for event in found:
        key, value = read(event.key), read(event.value)
        told.append((key,) if value is None else (key, value["op"], value["before"], value["after"]))
    return told


def row(line: int, amount: int | None = None, tags: str | None = None) -> dict[str, Any]:
    return {"customer": "ann", "line": line, "amount": amount, "tags": tags}


ONE, TWO = {"customer": "ann", "line": 1}, {"customer": "ann", "line": 2}


def test_rows_are_created_updated_and_deleted() -> None:
    found = events(
        LOG.insert(K, (1,), 10, amount=5),
        LOG.update(K, (1,), 20, tags={"a": "", "b": ""}),
        LOG.update(K, (1,), 15, amount=None),
        LOG.delete(K, (1,), 30),
    )
    tags = '["a","b"]'
    assert words(found) == [
        (ONE, "c", None, row(1, 5)),
        (ONE, "u", row(1, 5), row(1, 5, tags)),
        (ONE, "u", row(1, 5, tags), row(1, None, tags)),
        (ONE, "d", row(1, None, tags), None),
        (ONE,),
    ]
    assert {event.partition for event in found} == {token(b"ann")}


def test_rows_that_were_read_are_r_and_have_nothing_before() -> None:
    first = replace(LOG.update(K, (1,), 10, amount=5), op=Op.READ)
    later = replace(LOG.update(K, (1,), 20, amount=6), op=Op.READ)
    assert words(events(first, first, later, LOG.update(K, (1,), 30, amount=7))) == [
        (ONE, "r", None, row(1, 5)),
        (ONE, "r", None, row(1, 6)),
        (ONE, "u", row(1, 6), row(1, 7)),
    ]


def test_a_row_that_stays_as_it_was_has_no_event() -> None:
    """Copies, what is late, and what is written once more."""
    first = LOG.insert(K, (1,), 10, amount=5)
    assert len(events(first, first, LOG.update(K, (1,), 9, amount=1), LOG.update(K, (1,), 11, amount=5))) == 1


def test_a_deletion_of_many_rows_has_an_event_and_a_tombstone_for_each() -> None:
    changes = [LOG.insert(K, (1,), 10, amount=1), LOG.insert(K, (2,), 10, amount=2)]
    gone = LOG.delete_partition(K, 20)
    one, two = (ONE, "d", row(1, 1), None), (TWO, "d", row(2, 2), None)
    assert words(events(*changes, gone)[2:]) == [one, (ONE,), two, (TWO,)]
    assert words(events(*changes, gone, tombstones=False)[2:]) == [one, two]


def test_static_rows_go_elsewhere_by_the_partition_key() -> None:
    [event] = events(LOG.static(K, 10, note="hello"))
    assert event.topic == f"{TOPIC}.static"
    key = {"customer": "ann"}
    assert words([event]) == [(key, "c", None, {**key, "note": "hello"})]
    assert schema_of(event.value)["name"] == "changes.shop.cart.static.Envelope"


def test_the_envelope_is_what_debeziums_transforms_ask_for() -> None:
    [event] = events(LOG.insert(K, (1,), 1_700_000_000_123_456, amount=5))
    schema = schema_of(event.value)
    assert (schema["type"], schema["name"], schema["version"]) == ("struct", f"{TOPIC}.Envelope", 2)
    fields = {field["field"]: field for field in schema["fields"]}
    assert list(fields) == ["before", "after", "source", "op", "ts_ms", "ts_us", "ts_ns"]
    assert {fields[name]["name"] for name in ("before", "after")} == {f"{TOPIC}.Value"}
    assert [fields[name]["optional"] for name in fields] == [True, True, False, False, True, True, True]
    assert fields["source"]["name"] == "io.debezium.connector.tailrace.Source"
    key = schema_of(event.key)
    assert (key["name"], [(field["field"], field["optional"]) for field in key["fields"]]) == (
        f"{TOPIC}.Key",
        [("customer", False), ("line", False)],
    )
    value = read(event.value)
    source = value["source"]
    assert (source["connector"], source["name"], source["db"], source["table"], source["snapshot"]) == (
        "tailrace", "shop-cluster", "shop", "cart", "false",
    )  # fmt: skip
    assert (source["ts_ms"], source["ts_us"], source["ts_ns"]) == (
        1_700_000_000_123, 1_700_000_000_123_456, 1_700_000_000_123_456_000,
    )  # fmt: skip
    assert (source["topic"], source["partition"], source["offset"]) == ("t.shop.cart", 2, 7)


def test_times_are_when_it_was_written_and_when_the_agent_saw_it() -> None:
    change = LOG.insert(K, (1,), 10, amount=5)
    assert change.source is not None
    [seen] = events(replace(change, source=replace(change.source, seen=1_700_000_000_500)))
    value = read(seen.value)
    assert (value["ts_ms"], value["ts_us"]) == (1_700_000_000_500, 1_700_000_000_500_000)
    [far] = events(LOG.insert(K, (1,), 2**62, amount=5))
    value = read(far.value)
    assert (value["source"]["ts_us"], value["source"]["ts_ns"], value["ts_ns"]) == (2**62, None, None)


EVERY: Final[list[tuple[str, object, str, str | None, object]]] = [
    ("boolean", True, "boolean", None, True),
    ("tinyint", -128, "int8", None, -128),
    ("smallint", 32767, "int16", None, 32767),
    ("int", -(2**31), "int32", None, -(2**31)),
    ("bigint", 2**63 - 1, "int64", None, 2**63 - 1),
    ("float", 0.5, "float", None, 0.5),
    ("double", 0.1, "double", None, 0.1),
    ("double", float("nan"), "double", None, None),
    ("double", float("-inf"), "double", None, None),
    ("text", "grüße", "string", None, "grüße"),
    ("ascii", "a", "string", None, "a"),
    ("inet", "::1", "string", None, "::1"),
    ("varint", str(2**70), "string", None, str(2**70)),
    ("decimal", "1.10", "string", None, "1.10"),
    ("blob", b"\x00\xff", "bytes", None, b"\x00\xff"),
    ("uuid", "11111111-0000-4000-8000-000000000000", "string", "io.debezium.data.Uuid",
     "11111111-0000-4000-8000-000000000000"),
    ("timeuuid", "11111111-0000-1000-8000-000000000000", "string", "io.debezium.data.Uuid",
     "11111111-0000-1000-8000-000000000000"),
    ("timestamp", -1, "int64", "io.debezium.time.Timestamp", -1),
    ("date", -719_162, "int32", "io.debezium.time.Date", -719_162),
    ("time", 86_399_999_999_999, "int64", "io.debezium.time.NanoTime", 86_399_999_999_999),
    ("duration", {"months": 1, "days": 2, "nanoseconds": 3}, "string", "io.debezium.data.Json",
     '{"months":1,"days":2,"nanoseconds":3}'),
    ("frozen<list<blob>>", [b"\x01"], "string", "io.debezium.data.Json", '["01"]'),
    ("frozen<map<int, text>>", [{"key": 1, "value": "a"}], "string", "io.debezium.data.Json",
     '[{"key":1,"value":"a"}]'),
    ("frozen<tuple<int, text>>", {"f0": 1, "f1": None}, "string", "io.debezium.data.Json", '{"f0":1,"f1":null}'),
    ("vector<float, 2>", [0.5, float("inf")], "string", "io.debezium.data.Json", '[0.5,"inf"]'),
]  # fmt: skip


@pytest.mark.promise("debezium.folded")
@pytest.mark.parametrize(("cql", "value", "kind", "logical", "expected"), EVERY)
def test_every_type(cql: str, value: object, kind: str, logical: str | None, expected: object) -> None:
    """As a regular column, and as a key where it can be one."""
    of = table({"k": "int"}, regular={"v": cql}, keyspace="shop", name="cart")
    change = Log(of).insert((1,), (), 10, v=value)
    images = ImageMaker(of).of(Partition(), change, 0)
    [event] = DebeziumForm("p", by_token).events(TOPIC, change, PLACE, Imaged(of, images))
    [after] = [field for field in schema_of(event.value)["fields"] if field["field"] == "after"]
    [field] = [one for one in after["fields"] if one["field"] == "v"]
    assert (field["type"], field.get("name"), field.get("version"), field["optional"]) == (
        kind, logical, None if logical is None else 1, True,
    )  # fmt: skip
    assert read(event.value)["after"] == {"k": 1, "v": expected}
    if expected is None:
        return
    keyed = table({"k": cql}, keyspace="shop", name="cart")
    change = Log(keyed).insert((value,), (), 10)
    images = ImageMaker(keyed).of(Partition(), change, 0)
    [event] = DebeziumForm("p", by_token).events(TOPIC, change, PLACE, Imaged(keyed, images))
    assert read(event.key) == {"k": expected}
    assert read(event.value)["after"] == {"k": expected}


def test_counters_are_their_totals_and_types_without_a_name_are_bytes() -> None:
    assert connect_type(CqlType("counter")) == ("int64", None)
    assert connect_type(CqlType("custom")) == ("bytes", None)


def test_what_cannot_be_an_event_says_why() -> None:
    change = LOG.insert(K, (1,), 10)
    with pytest.raises(UnsupportedError, match="no image of its rows can be told"):
        list(DebeziumForm("p", by_token).events(TOPIC, change, PLACE, Imaged(CART, None)))
    with pytest.raises(UnsupportedError, match="no image of what has expired can be told"):
        list(DebeziumForm("p", by_token).expired(TOPIC, change, PLACE, Imaged(CART, (), None)))
    empty = replace(change, clustering=(b"",))
    images = ImageMaker(CART).of(Partition(), empty, 0)
    assert images is not None
    with pytest.raises(UnsupportedError, match="key column line has no value"):
        list(DebeziumForm("p", by_token).events(TOPIC, empty, PLACE, Imaged(CART, images)))


def test_a_definition_that_grew_has_its_own_schema() -> None:
    wider = replace(CART, regular=(*CART.regular, column(table({"p": "int"}, regular={"late": "int"}), "late")))
    form, partition = DebeziumForm("p", by_token), Partition()
    first = LOG.insert(K, (1,), 10, amount=1)
    [old] = form.events(TOPIC, first, PLACE, Imaged(CART, ImageMaker(CART).of(partition, first, 0)))
    second = Log(wider).update(K, (1,), 20, late=2)
    [new] = form.events(TOPIC, second, PLACE, Imaged(wider, ImageMaker(wider).of(partition, second, 0)))
    assert {*read(new.value)["after"]} - {*read(old.value)["after"]} == {"late"}
    assert read(new.value)["before"] == {**row(1, 1), "late": None}


def test_what_had_expired_has_events_of_its_own() -> None:
    partition, maker, change = Partition(), ImageMaker(CART), LOG.insert(K, (1,), 10, amount=5)
    first, gone = maker.of(partition, change, 0), maker.of(partition, LOG.delete(K, (1,), 20), 0)
    form = DebeziumForm("p", by_token)
    assert gone is not None
    imaged = Imaged(CART, first, gone)
    assert words([*form.expired(TOPIC, change, PLACE, imaged)]) == [(ONE, "d", row(1, 5), None), (ONE,)]
    assert words([*form.events(TOPIC, change, PLACE, imaged)]) == [(ONE, "c", None, row(1, 5))]
    assert [*form.expired(TOPIC, change, PLACE, Imaged(CART, first))] == []


@pytest.mark.promise("sinks.one-table-alone")
def test_the_longest_names_leave_room_for_the_topic_of_static_rows() -> None:
    settings = KafkaSinkSettings.model_validate({"format": "debezium", "images": "sqlite://"})
    route = KafkaTarget(name="k", prefix="p", settings=settings).route()
    topics = {route.of_table(of) + STATIC for of in LONG_NAMES}
    assert (len(topics), max(map(len, topics))) == (2, 249)
