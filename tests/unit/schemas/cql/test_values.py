"""Values byte by byte: tables of bytes and values, cut at every byte, lengthened; empty, odd and corrupt ones."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.cql.types import CqlType, parse_type
from tailrace_schemas.cql.values import codec
from tailrace_schemas.errors import CorruptError, DecodeError, TruncatedError
from tests.unit.schemas.cql.driver import types
from tests.unit.schemas.cql.hostile import OPEN, USER_TYPES, WHOLE


def _type(text: str) -> CqlType:
    return parse_type(text, USER_TYPES)


@pytest.mark.parametrize(("text", "data", "value"), WHOLE + OPEN)
def test_bytes_to_value_and_back(text: str, data: str, value: object) -> None:
    coder = codec(_type(text))
    decoded = coder.decode(bytes.fromhex(data))
    assert decoded == value
    assert type(decoded) is type(value)
    assert coder.encode(value) == bytes.fromhex(data)


@pytest.mark.parametrize(("text", "data"), [row[:2] for row in WHOLE])
def test_cut_at_every_byte(text: str, data: str) -> None:
    whole = bytes.fromhex(data)
    for cut in range(1, len(whole)):
        with pytest.raises(TruncatedError):
            codec(_type(text)).decode(whole[:cut])


@pytest.mark.parametrize(("text", "data"), [row[:2] for row in WHOLE])
def test_a_byte_too_many(text: str, data: str) -> None:
    # Where bytes come by the shard, one more is a shard cut.
    with pytest.raises(TruncatedError if text == "counter" else CorruptError):
        codec(_type(text)).decode(bytes.fromhex(data) + b"\x00")


@pytest.mark.parametrize("text", ["frozen<tuple<int, text>>", "frozen<u>"])
def test_records_cut_between_fields_lack_them(text: str) -> None:
    names = _type(text).fields or ("f0", "f1")
    coder = codec(_type(text))
    whole = coder.encode({names[0]: 7 if "tuple" in text else "7", names[1]: "b" if "tuple" in text else 8})
    ends = {len(whole), 8 if "tuple" in text else 5}
    for cut in range(1, len(whole)):
        if cut in ends:
            assert coder.decode(whole[:cut]) == {names[0]: 7 if "tuple" in text else "7", names[1]: None}
        else:
            with pytest.raises(TruncatedError):
                coder.decode(whole[:cut])
    with pytest.raises(CorruptError):
        coder.decode(whole + b"\x00")


@pytest.mark.parametrize(
    "text",
    [
        "int", "bigint", "smallint", "tinyint", "float", "double", "boolean", "uuid", "timeuuid", "timestamp", "date",
        "time", "varint", "decimal", "duration", "inet", "counter", "frozen<list<int>>", "frozen<set<int>>",
        "frozen<map<int, int>>", "frozen<tuple<int>>", "frozen<u>", "vector<float, 2>", "vector<text, 2>",
    ],
)  # fmt: skip
def test_no_bytes_are_no_value(text: str) -> None:
    coder = codec(_type(text))
    assert coder.decode(b"") is None
    assert coder.encode(None) == b""


@pytest.mark.parametrize(
    ("text", "data", "value"),
    [
        ("boolean", "02", True),
        ("varint", "0001", "1"),
        ("varint", "ffff80", "-128"),
        ("decimal", "000000000001", "1"),
        ("duration", "80020600", {"months": 1, "days": 3, "nanoseconds": 0}),
        ("frozen<list<int>>", "0000000100000000", [None]),
        ("frozen<list<text>>", "00000001fffffffe", [None]),
        ("frozen<tuple<int, int>>", "ffffffff", {"f0": None, "f1": None}),
        ("vector<text, 1>", "800161", ["a"]),
        ("counter", "0000" + "00" * 32, [{"id": bytes(16), "clock": 0, "count": 0}]),
        ("counter", "ffff0000" + "00" * 32, [{"id": bytes(16), "clock": 0, "count": 0}]),
    ],
)
def test_bytes_that_come_back_otherwise(text: str, data: str, value: object) -> None:
    coder = codec(_type(text))
    assert coder.decode(bytes.fromhex(data)) == value
    assert coder.encode(value) != bytes.fromhex(data)
    assert not coder.exact


def test_nan_keeps_no_payload_to_count_on() -> None:
    for text, data in [("float", "7fa00001"), ("double", "fff0000000000001")]:
        value = codec(CqlType(text)).decode(bytes.fromhex(data))
        assert isinstance(value, float)
        assert math.isnan(value)
        assert not codec(CqlType(text)).exact


@pytest.mark.parametrize(
    ("text", "data", "error"),
    [
        ("text", "c080", CorruptError),  # Java's NUL
        ("text", "eda080", CorruptError),  # a surrogate
        ("text", "61c3", CorruptError),
        ("ascii", "80", CorruptError),
        ("empty", "00", CorruptError),
        ("decimal", "00000000", TruncatedError),
        ("inet", "7f0000", TruncatedError),
        ("inet", "7f00000100", TruncatedError),
        ("inet", "00" * 17, CorruptError),
        ("duration", "020100", CorruptError),  # a month and minus a day
        ("duration", "f10000000000" + "00" + "00", CorruptError),  # more months than an int
        ("duration", "02060000", CorruptError),
        ("frozen<list<int>>", "ffffffff", CorruptError),
        ("frozen<list<int>>", "7fffffff", TruncatedError),
        ("frozen<list<int>>", "7fffffff00000000", TruncatedError),
        ("frozen<map<int, int>>", "000000020000000000000000000000", TruncatedError),
        ("frozen<list<int>>", "000000017fffffff", TruncatedError),
        ("frozen<list<int>>", "00000001000000050000000000", CorruptError),
        ("vector<text, 2>", "01", TruncatedError),
        ("vector<text, 2>", "ffffffffffffffffff00", TruncatedError),
        ("counter", "7fff", TruncatedError),
        ("counter", "8000", TruncatedError),
        ("counter", "000000", TruncatedError),
    ],
)
def test_no_value(text: str, data: str, error: type[DecodeError]) -> None:
    with pytest.raises(error):
        codec(_type(text)).decode(bytes.fromhex(data))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("int", 1 << 31), ("int", True), ("int", "1"), ("int", 1.0), ("tinyint", 128), ("date", 1 << 31),
        ("date", False), ("float", 1e39), ("float", "1"), ("double", True), ("boolean", 1),
        pytest.param("double", 10**400, id="beyond double"),
        ("text", b"a"), ("text", "\ud800"), ("text", None), ("ascii", "é"), ("blob", "a"), ("blob", None),
        ("empty", b"a"), ("uuid", "00112233445566778899aabbccddeeff"), ("uuid", 5),
        ("uuid", "00112233-4455-6677-8899-aabbccddeefg"), ("uuid", "0011223-34455-6677-8899-aabbccddeeff"),
        ("uuid", "0011223 -4455-6677-8899-aabbccddeeff"), ("uuid", "0011-233-4455-6677-8899-aabbccddeef-"),
        ("uuid", "00112233-4455-6677-8899- aabbccddeef"), ("inet", "1.2.3"),
        ("inet", "fe80::1%eth0"), ("inet", "/1.2.3.4"), ("inet", "localhost"), ("inet", 5),
        ("varint", 5), ("varint", "0x10"), ("varint", "1.0"), ("varint", ""), ("varint", "٣"), ("decimal", 1.5),
        ("decimal", "NaN"), ("decimal", "1."), ("decimal", "1E+2147483649"), ("decimal", "1E-2147483648"),
        ("duration", {"months": 1, "days": -1, "nanoseconds": 0}), ("duration", {"months": 1}), ("duration", 5),
        ("duration", {"months": 1 << 31, "days": 0, "nanoseconds": 0}), ("counter", 5), ("counter", [5]),
        ("counter", [{"id": bytes(16), "clock": 1 << 63, "count": 0}]), ("counter", [{"id": b"", "clock": 0}]),
        ("frozen<list<int>>", 5), ("frozen<list<int>>", ["a"]), ("frozen<map<int, int>>", {1: 2}),
        ("frozen<map<int, int>>", [{"key": 1}]), ("frozen<u>", {"street": "a"}), ("frozen<u>", ["a"]),
        ("vector<float, 2>", [1.0]), ("vector<float, 2>", [1.0, None]), ("vector<text, 1>", [None]),
    ],
)  # fmt: skip
def test_what_is_no_value_of_the_type(text: str, value: object) -> None:
    with pytest.raises(ValueError, match=r"takes|written|scale"):
        codec(_type(text)).encode(value)


def test_a_value_in_an_error_is_never_shown() -> None:
    with pytest.raises(ValueError, match="int takes an int of 4 bytes, not this str") as caught:
        codec(CqlType("int")).encode("hunter2")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("text", ["frozen<list<int>>", "frozen<map<int, int>>"])
def test_counts_are_checked_before_elements(text: str) -> None:
    with pytest.raises(TruncatedError, match="a collection of 2147483647 entries in 12 bytes"):
        codec(_type(text)).decode(bytes.fromhex("7fffffff0000000000000000"))


@pytest.mark.slow
@given(st.tuples(types(), st.binary(max_size=40)))
def test_bytes_are_a_value_or_a_decode_error(case: tuple[CqlType, bytes]) -> None:
    cql_type, data = case
    coder = codec(cql_type)
    try:
        value = coder.decode(data)
    except DecodeError:
        return
    again = coder.encode(value)
    assert again == data or not coder.exact
    assert coder.gives_back(data, value) == (again == data)
    # What was written once is written the same for ever, NaNs apart.
    if "nan" not in repr(value):
        assert coder.decode(again) == value


@given(st.sampled_from(["counter", "empty"]), st.binary(max_size=80))
def test_bytes_of_types_the_driver_lacks(kind: str, data: bytes) -> None:
    try:
        value = codec(CqlType(kind)).decode(data)
    except DecodeError:
        return
    assert codec(CqlType(kind)).decode(codec(CqlType(kind)).encode(value)) == value


@given(st.sampled_from([("varint", b""), ("decimal", bytes(4))]), st.binary(min_size=1, max_size=4))
def test_numbers_in_their_shortest_bytes(kind: tuple[str, bytes], number: bytes) -> None:
    coder, data = codec(CqlType(kind[0])), kind[1] + number
    value = coder.decode(data)
    assert coder.gives_back(data, value) == (coder.encode(value) == data)


def test_numbers_beyond_the_interpreters_limits() -> None:
    huge = b"\x01" + bytes(3000)
    for kind, data in [("varint", huge), ("decimal", b"\x00\x00\x00\x05" + huge)]:
        text = codec(CqlType(kind)).decode(data)
        assert isinstance(text, str)
        assert len(text) > 7000
        assert codec(CqlType(kind)).encode(text) == data
