"""What several modules of tests share of values."""

from __future__ import annotations

import math

from tailrace_schemas.cql.types import UserTypeDefinition

USER_TYPES = {"u": UserTypeDefinition("u", ("Street", "zip"), ("text", "int"))}


MAX_LONG = (1 << 63) - 1


# Every byte counts: no part of these is a value, nor are they with a byte more.
WHOLE: list[tuple[str, str, object]] = [
    ("boolean", "00", False),
    ("boolean", "01", True),
    ("tinyint", "ff", -1),
    ("smallint", "8000", -32768),
    ("int", "7fffffff", 2147483647),
    ("int", "ffffffff", -1),
    ("bigint", "8000000000000000", -MAX_LONG - 1),
    ("timestamp", "4000000000000000", 1 << 62),
    ("timestamp", "ffffffffffffffff", -1),
    ("date", "80000000", 0),
    ("date", "8000461a", 17946),  # 2019-02-19
    ("date", "00000000", -(1 << 31)),
    ("date", "ffffffff", (1 << 31) - 1),
    ("time", "000000000000001e", 30),
    ("time", "ffffffffffffffff", -1),
    ("float", "3f8ccccd", 1.100000023841858),
    ("float", "80000000", -0.0),
    ("double", "3ff199999999999a", 1.1),
    ("double", "7ff0000000000000", math.inf),
    ("uuid", "00112233445566778899aabbccddeeff", "00112233-4455-6677-8899-aabbccddeeff"),
    ("timeuuid", "2be43760e57f11f1859973518cff440e", "2be43760-e57f-11f1-8599-73518cff440e"),
    ("duration", "020600", {"months": 1, "days": 3, "nanoseconds": 0}),
    ("duration", "020683e8", {"months": 1, "days": 3, "nanoseconds": 500}),
    ("duration", "0101fffffffffffffffffd", {"months": -1, "days": -1, "nanoseconds": -MAX_LONG}),
    ("frozen<list<int>>", "00000000", []),
    ("frozen<list<int>>", "0000000200000004000000010000000400000002", [1, 2]),
    ("frozen<list<int>>", "00000001ffffffff", [None]),
    ("frozen<set<text>>", "0000000200000001620000000161", ["b", "a"]),
    ("frozen<map<text, int>>", "00000001000000016100000004ffffffff", [{"key": "a", "value": -1}]),
    ("frozen<map<text, text>>", "0000000100000000ffffffff", [{"key": "", "value": None}]),
    ("vector<smallint, 2>", "0200010200ff", [1, 255]),
    ("vector<text, 2>", "000161", ["", "a"]),
    ("vector<float, 2>", "3f80000040000000", [1.0, 2.0]),
    ("vector<vector<int, 1>, 2>", "0000000100000002", [[1], [2]]),
    ("vector<uuid, 1>", "00112233445566778899aabbccddeeff", ["00112233-4455-6677-8899-aabbccddeeff"]),
    ("vector<frozen<list<text>>, 1>", "09000000010000000161", [["a"]]),
    ("counter", "0000", []),
    ("map<int, frozen<list<frozen<tuple<int, text>>>>>", "00000000", []),
]


# Shorter bytes may be values too.
OPEN: list[tuple[str, str, object]] = [
    ("text", "", ""),
    ("text", "c3a900f09f9880", "é\x00😀"),
    ("ascii", "6100", "a\x00"),
    ("blob", "", b""),
    ("blob", "00ff", b"\x00\xff"),
    ("empty", "", b""),
    ("'some.custom.Type'", "00ff", b"\x00\xff"),
    ("varint", "00", "0"),
    ("varint", "ff", "-1"),
    ("varint", "0080", "128"),
    ("varint", "013a", "314"),
    ("decimal", "0000000000", "0"),
    ("decimal", "0000000264", "1.00"),
    ("decimal", "000000010a", "1.0"),
    ("decimal", "ffffffff01", "1E+1"),
    ("decimal", "0000000a85", "-1.23E-8"),
    ("decimal", "8000000001", "1E+2147483648"),
    ("decimal", "7fffffff00", "0E-2147483647"),
    ("inet", "7f000001", "127.0.0.1"),
    ("inet", "20010db8000000000000000000000001", "2001:db8::1"),
    (
        "counter",
        "00018000" + "00112233445566778899aabbccddeeff" + "0000000000000002" + "fffffffffffffffd",
        [{"id": bytes.fromhex("00112233445566778899aabbccddeeff"), "clock": 2, "count": -3}],
    ),
    ("frozen<tuple<int, text>>", "0000000400000007ffffffff", {"f0": 7, "f1": None}),
    ("frozen<tuple<int, text>>", "ffffffff00000000", {"f0": None, "f1": ""}),
    ("frozen<u>", "000000016100000004000004d2", {"Street": "a", "zip": 1234}),
]
