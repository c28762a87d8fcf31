"""Cassandra's comparisons once more, written from their rules over parsed values: the oracle of the byte forms.

A tree is a value taken apart: bytes for scalars (b"" is empty), None for null, a list of trees for everything else.
"""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from tailrace_schemas.cql.types import CqlType, parse_type
from tailrace_schemas.cql.vint import write_unsigned

Tree = Any
SCALARS = (
    "ascii", "bigint", "blob", "boolean", "date", "decimal", "double", "float", "inet", "int", "smallint", "text",
    "time", "timestamp", "timeuuid", "tinyint", "uuid", "varint",
)  # fmt: skip
NESTED = (
    "frozen<list<int>>", "frozen<list<text>>", "frozen<set<varint>>", "frozen<map<text, int>>",
    "frozen<map<uuid, frozen<list<blob>>>>", "tuple<int>", "tuple<text, int, blob>", "tuple<int, frozen<list<text>>>",
    "frozen<list<frozen<tuple<int, text>>>>", "vector<float, 2>", "vector<text, 2>", "vector<vector<int, 1>, 2>",
)  # fmt: skip
TYPES = [parse_type(text) for text in (*SCALARS, "'LexicalUUIDType'", *NESTED)]
_SIZES = {"bigint": 8, "boolean": 1, "date": 4, "double": 8, "float": 4, "int": 4, "smallint": 2, "time": 8,
          "timestamp": 8, "tinyint": 1}  # fmt: skip
# Few different bytes, so that values share beginnings and differ in sign.
_BYTES = st.sampled_from((0x00, 0x01, 0x7F, 0x80, 0xFF))
_FLOATS = [0.0, -0.0, 1.0, -1.0, 1e-40, float("inf"), float("-inf"), float("nan")]


def trees(cql_type: CqlType, empty: bool = True) -> st.SearchStrategy[Tree]:
    """Values of a type, now and then an empty one."""
    if cql_type.kind == "vector":
        element = trees(cql_type.args[0], empty=cql_type.args[0].fixed_size is None)
        return st.lists(element, min_size=cql_type.dimension, max_size=cql_type.dimension)
    if cql_type.kind in ("tuple", "udt"):
        made: st.SearchStrategy[Tree] = st.tuples(*(st.none() | trees(arg) for arg in cql_type.args)).flatmap(_prefixes)
    elif cql_type.kind == "map":
        made = st.lists(st.tuples(trees(cql_type.args[0]), trees(cql_type.args[1])).map(list), max_size=2)
    elif cql_type.args:
        made = st.lists(trees(cql_type.args[0]), max_size=3)
    else:
        made = _scalars(cql_type)
    return made | st.just(b"") if empty else made


def _prefixes(fields: tuple[Tree, ...]) -> st.SearchStrategy[list[Tree]]:
    return st.integers(1, len(fields)).map(lambda size: list(fields[:size]))


def _packed(minimum: int, maximum: int) -> st.SearchStrategy[bytes]:
    return st.lists(_BYTES, min_size=minimum, max_size=maximum).map(bytes)


def _scalars(cql_type: CqlType) -> st.SearchStrategy[bytes]:
    kind = cql_type.kind
    if kind in ("float", "double"):
        code = ">f" if kind == "float" else ">d"
        return _packed(_SIZES[kind], _SIZES[kind]) | st.sampled_from(_FLOATS).map(lambda v: struct.pack(code, v))
    if kind in _SIZES:
        return _packed(_SIZES[kind], _SIZES[kind])
    if kind in ("uuid", "timeuuid"):
        versions = (0x10,) if kind == "timeuuid" else (0x10, 0x40, 0x70, 0xF0)
        times = st.sampled_from([bytes(8), b"\x01" + bytes(7), b"\x80" + bytes(7), b"\x00\x00\x01\x00\x80\x00\x0f\x01"])
        parts = st.tuples(times, st.sampled_from(versions), _packed(8, 8))
        return parts.map(lambda p: p[0][:6] + bytes((p[1] | p[0][6] & 15,)) + p[0][7:] + p[2])
    if kind == "varint":
        return _packed(1, 5)
    if kind == "decimal":
        unscaled = _packed(1, 5) | st.sampled_from([b"\x01", b"\x0a", b"\x64", b"\xf6", b"\x9c", b"\x00"])
        scales = st.integers(-3, 3) | st.sampled_from((-(1 << 31), (1 << 31) - 1))
        return st.tuples(scales, unscaled).map(lambda p: p[0].to_bytes(4, "big", signed=True) + p[1])
    if kind == "inet":
        return _packed(4, 4) | _packed(16, 16)
    if kind in ("text", "ascii"):
        return st.text(
            st.sampled_from("\x00\x01a~" if kind == "ascii" else "\x00a\xff\u20ac\U0001f600"), max_size=3
        ).map(str.encode)
    return _packed(0, 3)


def serialize(cql_type: CqlType, tree: Tree) -> bytes:
    """The bytes of a tree, as Cassandra lays them out."""
    if isinstance(tree, bytes):
        return tree
    args = cql_type.args
    if cql_type.kind in ("list", "set"):
        return len(tree).to_bytes(4, "big") + b"".join(_element(args[0], element) for element in tree)
    if cql_type.kind == "map":
        pairs = b"".join(_element(args[0], key) + _element(args[1], value) for key, value in tree)
        return len(tree).to_bytes(4, "big") + pairs
    if cql_type.kind == "vector":
        data = [serialize(args[0], element) for element in tree]
        fixed = args[0].fixed_size is not None
        return b"".join(data if fixed else [write_unsigned(len(one)) + one for one in data])
    return b"".join(_element(arg, field) for arg, field in zip(args, tree, strict=False))


def _element(cql_type: CqlType, tree: Tree) -> bytes:
    if tree is None:
        return b"\xff\xff\xff\xff"
    data = serialize(cql_type, tree)
    return len(data).to_bytes(4, "big") + data


def compare(cql_type: CqlType, left: Tree, right: Tree) -> int:
    """-1, 0 or 1 as Cassandra compares two values of a type: null, then empty, then by the type."""
    if left is None or right is None:
        return int(left is not None) - int(right is not None)
    if left == b"" or right == b"":
        return int(left != b"") - int(right != b"")
    args = cql_type.args
    if not args:
        a, b = _rank(cql_type, left), _rank(cql_type, right)
        return int(a > b) - int(a < b)
    if cql_type.kind == "map":
        left = [half for pair in left for half in pair]
        right = [half for pair in right for half in pair]
    if cql_type.kind in ("tuple", "udt"):
        left = list(left) + [None] * (len(args) - len(left))
        right = list(right) + [None] * (len(args) - len(right))
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        result = compare(args[index] if cql_type.kind in ("tuple", "udt") else args[index % len(args)], a, b)
        if result:
            return result
    return (len(left) > len(right)) - (len(left) < len(right))


def _rank(cql_type: CqlType, data: bytes) -> Any:
    kind = cql_type.kind
    if cql_type.name:
        return struct.unpack(">qq", data)
    if kind in ("int", "bigint", "smallint", "tinyint", "timestamp", "varint"):
        return int.from_bytes(data, "big", signed=True)
    if kind == "boolean":
        return data != b"\x00"
    if kind in ("float", "double"):
        value = struct.unpack(">f" if kind == "float" else ">d", data)[0]
        return (1, 0.0, 0) if value != value else (0, value, data[0] < 0x80)
    if kind == "decimal":
        digits = str(abs(int.from_bytes(data[4:], "big", signed=True)))
        sign = int(data[4] >= 0x80)
        return Decimal((sign, tuple(map(int, digits)), -int.from_bytes(data[:4], "big", signed=True)))
    if kind == "uuid":
        uuid = UUID(bytes=data)
        version = uuid.int >> 76 & 15
        return (version, uuid.time, data[8:]) if version == 1 else (version, data[:8], data[8:])
    if kind == "timeuuid":
        return (UUID(bytes=data).time, struct.unpack("8b", data[8:]))
    return data
