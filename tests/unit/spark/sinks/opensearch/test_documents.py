"""Every type in real search servers: searched as what it is, and no value refused."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace_spark.batch.delivery import Summary
from tests import java_sources, opensearch
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.merging_contract import write
from tests.unit.spark.sinks.opensearch.indexes import Searched
from tests.unit.tables import table

pytestmark = pytest.mark.skipif(java_sources.missing() is not None, reason=str(java_sources.missing()))

TYPED = table(
    {"k": "uuid"},
    regular={
        "b": "boolean", "i8": "tinyint", "i16": "smallint", "i64": "bigint", "f": "float", "d": "double",
        "n": "decimal", "big": "varint", "day": "date", "moment": "timestamp", "t": "time", "ip": "inet", "raw": "blob",
        "gap": "duration", "m": "map<text, int>", "l": "list<text>", "st": "set<int>", "u": "addr",
        "tu": "frozen<tuple<int, text>>", "us": "list<frozen<addr>>", "_id": "int", "A b": "text",
        "vec": "vector<float, 2>",
    },
    keyspace="shop",
    name="typed",
)  # fmt: skip
KEY = "00000000-0000-0000-0000-00000000000a"


def nested(path: str, *queries: dict[str, Any]) -> dict[str, Any]:
    """One element of a column that all of the queries find."""
    return {"nested": {"path": path, "query": {"bool": {"filter": list(queries)}}}}


@pytest.mark.long
@pytest.mark.parametrize("kind", ["opensearch", "elasticsearch"])
def test_every_type_is_searched_as_what_it_is(kind: opensearch.Kind) -> None:
    searched = Searched(opensearch.server(kind).url)
    log = Log(TYPED)
    values: dict[str, Any] = {
        "b": True, "i8": -1, "i16": 300, "i64": 2**63 - 1, "f": 1.5, "d": 2.25, "n": "12345678901234567890.50",
        "big": str(2**80), "day": 0, "moment": 1_760_000_000_123, "t": 3_600_000_000_001, "ip": "10.1.2.3",
        "raw": b"\0\xff", "gap": {"months": 1, "days": 2, "nanoseconds": 3}, "m": {"=": None, "x": 1, "y": 2},
        "l": {"=": None, 1: "one", 2: "two words"}, "st": {"=": None, 5: True, 3: True},
        "u": {"=": None, "street": "S", "zip": 7}, "tu": {"f0": 1, "f1": "x"},
        "us": {"=": None, 1: {"street": "A", "zip": 1, "tags": ["t"]}, 2: {"street": "B", "zip": 2, "tags": None}},
        "_id": 9, "A b": "spaced", "vec": [1.0, 2.0],
    }  # fmt: skip
    write(searched, log.insert((KEY,), (), 1, **values))
    [found] = searched.search(TYPED)
    assert found == {
        "_id": KEY, "k": KEY, "b": True, "i8": -1, "i16": 300, "i64": 2**63 - 1, "f": 1.5, "d": 2.25,
        "n": "12345678901234567890.50", "big": str(2**80), "day": "1970-01-01", "moment": "2025-10-09T08:53:20.123Z",
        "t": "01:00:00.000000001", "ip": "10.1.2.3", "raw": "AP8=", "gap": {"months": 1, "days": 2, "nanoseconds": 3},
        "m": [{"key": "x", "value": 1}, {"key": "y", "value": 2}], "l": ["one", "two words"], "st": [3, 5],
        "u": {"street": "S", "zip": 7}, "tu": {"f0": 1, "f1": "x"},
        "us": [{"street": "A", "zip": 1, "tags": ["t"]}, {"street": "B", "zip": 2}], "_id_2": 9, "A_x20_b": "spaced",
        "vec": [1.0, 2.0],
    }  # fmt: skip
    hits: list[dict[str, Any]] = [
        {"term": {"k": KEY}}, {"term": {"b": True}},
        {"range": {"i64": {"gte": 2**63 - 1}}}, {"range": {"f": {"gt": 1}}},
        {"term": {"n": "12345678901234567890.50"}}, {"range": {"n.number": {"gt": 1e19}}},
        {"range": {"big.number": {"gt": 1e24}}}, {"range": {"day": {"lt": "1970-01-02"}}},
        {"range": {"moment": {"gte": "2025-10-09T08:53:20.123Z", "lte": "2025-10-09T08:53:20.123Z"}}},
        {"range": {"t": {"gte": "01:00", "lt": "02:00"}}}, {"term": {"ip": "10.0.0.0/8"}}, {"term": {"gap.days": 2}},
        nested("m", {"term": {"m.key.keyword": "y"}}, {"term": {"m.value": 2}}),
        {"match": {"l": "words"}}, {"term": {"l.keyword": "two words"}}, {"term": {"st": 3}}, {"term": {"u.zip": 7}},
        {"term": {"tu.f0": 1}}, {"term": {"_id_2": 9}}, {"term": {"A_x20_b": "spaced"}},
        nested("us", {"term": {"us.zip": 2}}, {"match": {"us.street": "B"}}),
    ]  # fmt: skip
    misses: list[dict[str, Any]] = [
        nested("m", {"term": {"m.key.keyword": "x"}}, {"term": {"m.value": 2}}),
        {"range": {"moment": {"gt": "2025-10-09T08:53:20.123Z"}}}, {"term": {"ip": "192.168.0.0/16"}},
    ]  # fmt: skip
    assert [query for query in hits if not searched.search(TYPED, query)] == []
    assert [query for query in misses if searched.search(TYPED, query)] == []


@pytest.mark.promise("opensearch.refused")
@pytest.mark.long
@pytest.mark.parametrize("kind", ["opensearch", "elasticsearch"])
def test_no_value_makes_the_server_refuse_its_row(kind: opensearch.Kind) -> None:
    """What a field cannot index is in the document all the same."""
    searched = Searched(opensearch.server(kind).url)
    log = Log(TYPED)
    odd: list[dict[str, Any]] = [
        {"f": float("nan")}, {"d": float("inf")}, {"d": float("-inf")}, {"f": 3.4028234663852886e38},
        {"n": "1E+400"}, {"n": "9" * 9_000}, {"big": "-" + "9" * 400}, {"day": -(2**31)}, {"day": 2**31 - 1},
        {"moment": 2**63 - 1}, {"moment": -(2**63)}, {"moment": -62_135_596_800_000}, {"moment": 253_402_300_799_999},
        {"t": 86_399_999_999_999}, {"ip": "::ffff:1.2.3.4"}, {"ip": "fe80::1"}, {"A b": "x" * 40_000}, {"A b": ""},
        {"A b": "\0\n\u2028"}, {"l": {"=": None, 1: "y" * 40_000}}, {"raw": b"\1" * 40_000}, {"m": {"=": None, "": 0}},
        {"gap": {"months": -(2**31), "days": 0, "nanoseconds": -(2**63) + 1}},
        {"m": {"=": None, **{str(number): number for number in range(10_001)}}},
    ]  # fmt: skip
    keys = [f"00000000-0000-0000-0000-{number:012}" for number in range(len(odd))]
    for key, values in zip(keys, odd, strict=True):
        done = write(searched, log.insert((key,), (), 1, **values))
        assert done == Summary(1, 1, 0), values
    found = {row["k"]: row for row in searched.search(TYPED)}
    assert found.keys() == set(keys)
    shown = [found[key] for key in keys]
    assert [row["f"] for row in (shown[0],)] == ["NaN"]
    assert (shown[1]["d"], shown[2]["d"], shown[5]["n"]) == ("Infinity", "-Infinity", "9" * 9_000)
    assert (shown[7]["day"], shown[9]["moment"], len(shown[16]["A_x20_b"])) == ("-5877641-06-23", 2**63 - 1, 40_000)
