"""Entry points of tailrace_schemas: CQL types and values, their orders, tokens, tables, clustering keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any, Final

from tailrace_schemas.change import Bound
from tailrace_schemas.clustering import clustering_key, range_limits
from tailrace_schemas.cql.nested import read_vector_element
from tailrace_schemas.cql.numeric import integer_text, integer_value, scaled_text, scaled_value
from tailrace_schemas.cql.order import order, sortable
from tailrace_schemas.cql.scalars import address_bytes, address_text
from tailrace_schemas.cql.types import (
    CqlType,
    UserTypes,
    freeze,
    leaves,
    parse_type,
    parts,
    quote_identifier,
    require_leaves,
    require_shallow,
    shared,
    user_types_in,
)
from tailrace_schemas.cql.values import codec, join_key, split_key
from tailrace_schemas.cql.vint import read_signed, read_unsigned, write_signed, write_unsigned
from tailrace_schemas.position import Position, position_from_json, position_to_json
from tailrace_schemas.table import Table, columns_by_name, sharing
from tailrace_schemas.tokens import first_token, partition, sign_extending_hash, token, word_of
from tests.differential.cases import Case, Family, calls, examples
from tests.differential.inputs import WORDS, damaged, values
from tests.unit.schemas.cql.hostile import USER_TYPES
from tests.unit.spark.changes import PLAIN
from tests.unit.spark.sinks.hostile import NAMES
from tests.unit.tables import table

_BEYOND: Final = (*WORDS, 2**63, -(2**63) - 1, 2**64 - 1, 2**64, -(2**64), 2**70, 10**700, -(10**4500))
_PLAIN_VALUES: Final[tuple[Any, ...]] = (
    None, True, 0, 1, -1, 2**31, 2**63, -(2**70), 1.5, float("nan"), float("inf"), 1e39, "", "1", "-1.5E+3", "x",
    "\ud800", "\u0663", "127.0.0.1", "::1", "1.2.3", "00112233-4455-6677-8899-aabbccddeeff", b"", b"\x00\xff", [],
    [None], [1], ["a"], [b""], {}, {"f0": 1, "f1": "a"}, {"Street": "a", "zip": 1},
    {"months": 1, "days": 2, "nanoseconds": 3},
    {"months": 1, "days": -2, "nanoseconds": 3}, {"months": 2**31, "days": 0, "nanoseconds": 0},
    {"months": 0, "days": 0, "nanoseconds": 2**63}, [{"key": 1, "value": 2}], [{"key": "a"}],
    [{"id": bytes(16), "clock": 2**63, "count": 0}], [{"id": bytes(16), "clock": 1, "count": -(2**63)}], [{"id": b""}],
)  # fmt: skip
_TEXTS: Final = (
    "int", "frozen<list<int>>", "map<text, frozen<set<uuid>>>", "tuple<int, text>", "vector<float, 3>", "u",
    "frozen<u>", "'org.apache.cassandra.db.marshal.LexicalUUIDType'", "'com.example.Type'", '"u"', "list<frozen<u>>",
    "frozen<tuple<int, frozen<map<int, vector<text, 2>>>>>", "vector<int, 0>", "vector<int, 99999999999>", "list<int",
    "int>", "map<int>", "list<int, int>", "tuple<>", "unknown", "vector<int>", "'", '"', "", "<", "frozen<int>",
    "list<u>", "list<" * 70 + "int" + ">" * 70, "frozen<" * 65 + "list<int>" + ">" * 65,
)  # fmt: skip


def _value(of: CqlType, data: bytes) -> object:
    decoded = codec(of).decode(data)
    return decoded, codec(of).encode(decoded), codec(of).exact


def _ordered(of: CqlType, data: bytes | None) -> object:
    return [_tried(sortable, of, data, down) for down in (False, True)], _tried(order(of).form, data or b"")


def _tried(function: Any, *given: object) -> object:
    try:
        return function(*given)
    except ValueError as error:
        return f"{type(error).__name__}: {error}"


def _values(random: Random) -> Iterator[Case]:
    for index, (of, data) in enumerate(values()):
        inputs = list(damaged(random, data, examples(24)))
        yield from calls(f"value {index} of {of}", _value, ((of, some) for some in inputs))
        yield from calls(f"order {index} of {of}", _ordered, ((of, some) for some in (*inputs[:8], None)))
    for of in {str(of): of for of, _ in values()}.values():
        yield from calls(f"bytes of {of}", codec(of).encode, _PLAIN_VALUES)
        yield from calls(f"elements of {of}", codec(of).encode, ([value] for value in _PLAIN_VALUES))


def _keys(random: Random) -> Iterator[Case]:
    for index in range(examples(60)):
        columns = random.sample(values(), random.randint(1, 3))
        types = [of for of, _ in columns]
        key = join_key(types, [data for _, data in columns]) if all(len(data) < 1 << 16 for _, data in columns) else b""
        yield from calls(f"parts of key {index}", split_key, ((types, some) for some in damaged(random, key, 30)))
        yield f"key {index}", lambda of=types, some=columns: join_key(of, [data for _, data in some])  # type: ignore[misc]  # a lambda's defaults have no types
    yield from calls("key", join_key, [([CqlType("blob")] * 2, [b"x" * size, b""]) for size in (65_535, 65_536)])
    yield from calls("key of none", join_key, [([], []), ([CqlType("int")], []), ([CqlType("int")], [b"a", b"b"])])


def _types(random: Random) -> Iterator[Case]:
    known = UserTypes(USER_TYPES)
    texts = [*_TEXTS, *dict.fromkeys(str(of) for of, _ in values())]
    for text in texts:
        damages = [data.decode("latin-1") for data in damaged(random, text.encode("latin-1", "replace"), examples(8))]
        yield from calls(f"type {text[:40]}", _parsed, ((some, known) for some in damages))
    yield from calls("identifier", quote_identifier, (name for of in NAMES.values() for name in (of.name, "Ab", "key")))


def _parsed(text: str, known: Any) -> object:
    of = parse_type(text, known)
    other = parse_type(text, USER_TYPES)
    facts = str(of), repr(of), of == other, hash(of) == hash(other), of.multicell, of.fixed_size, str(freeze(of))
    require_leaves(of, 20)
    require_shallow(of)
    return *facts, leaves(of), [*map(str, parts([of]))], user_types_in([of]), shared(of) == of, of == "int"


def _numbers(random: Random) -> Iterator[Case]:
    pairs = [(number, scale) for number in _BEYOND for scale in (0, 1, -1, 7, 400, 2**31 - 1, -(2**31))]
    texts = [scaled_text(number, scale) for number, scale in pairs if abs(scale) < 401]
    texts += [text.encode()[:60].decode() for text in texts] + [
        "",
        "-",
        "+1",
        "1e",
        "1E+999999999999999999",
        "1.",
        "1_0",
    ]
    yield from calls("integer's text", integer_text, _BEYOND)
    yield from calls("decimal's text", scaled_text, pairs)
    for text in texts:
        yield from calls(f"number of {text[:30]}", _number, damaged_texts(random, text))
    yield from calls("vint", write_unsigned, _BEYOND)
    yield from calls("signed vint", write_signed, _BEYOND)
    vints = [write(number) for write in (write_unsigned, write_signed) for number in WORDS if number >= 0]
    for index, data in enumerate(vints):
        some = [(cut, offset) for cut in damaged(random, data, 20) for offset in (0, 1, -1, 2**40)]
        yield from calls(f"vint {index}", read_unsigned, some)
        yield from calls(f"signed vint {index}", read_signed, some)
        yield from calls(f"vector's element {index}", read_vector_element, some[::4])


def damaged_texts(random: Random, text: str) -> list[str]:
    """The text, and a few near it."""
    return [data.decode("latin-1") for data in damaged(random, text.encode(), 4)]


def _number(text: str) -> object:
    return _tried(integer_value, text), _tried(scaled_value, text)


def _addresses(random: Random) -> Iterator[Case]:
    addresses = [random.randbytes(size) for size in (4, 16) for _ in range(20)]
    addresses += [
        bytes(16),
        bytes(15) + b"\x01",
        bytes(10) + b"\xff\xff\x01\x02\x03\x04",
        b"\x20" + bytes(13) + b"\x01\x00",
    ]
    yield from calls("address", address_text, addresses)
    texts = [address_text(data) for data in addresses] + [
        "",
        "1.2.3.256",
        "::",
        ":::",
        "1::2::3",
        "fe80::1%a",
        "::1.2.3.4",
    ]
    yield from calls("address of", address_bytes, (some for text in texts for some in damaged_texts(random, text)))


def _tokens(random: Random) -> Iterator[Case]:
    keys = [random.randbytes(size) for size in (*range(40), 100, 1000) for _ in range(examples(4))]
    keys += [bytes([byte]) * size for byte in (0, 0x7F, 0x80, 0xFF) for size in range(34)]
    yield from calls("token", token, keys)
    yield from calls("sign-extending hash", sign_extending_hash, keys)
    yield from calls("partition", partition, product((*WORDS, *map(token, keys[:50])), (1, 2, 3, 1000, 2**31 - 1)))
    yield from calls(
        "first token", first_token, ((number, n) for n in (1, 2, 3, 1000, 2**31 - 1) for number in (0, 1, n - 1))
    )
    yield from calls(
        "word", word_of, ((high, low) for high in (0, 1, 2**31 - 1, -1, -(2**31)) for low in (0, 1, 2**32 - 1))
    )


def _tables(random: Random) -> Iterator[Case]:
    tables: list[Table] = [PLAIN, *NAMES.values()]
    of_keys = [of for of, _ in values() if not (of.multicell or of.kind == "counter" or user_types_in([of]))]
    for index in range(examples(40)):
        some = random.sample(of_keys, 3)
        names = {f"c{place}": f"{of}{random.choice(('', ' desc'))}" for place, of in enumerate(some)}
        of_values = {str(of): [data for other, data in values() if other == of] for of in some}
        clustered = table({"p": "int"}, names, regular={"v": "int"}, dropped={"v": ("text", 5)})
        tables.append(clustered)
        row = tuple(random.choice([*of_values[str(column.type)], None]) for column in clustered.clustering)
        yield f"clustering {index}", lambda of=clustered, some=row: clustering_key(of, some)  # type: ignore[misc]  # as above
        bounds = [Bound(row[:count], inclusive) for count in range(len(row) + 2) for inclusive in (False, True)]
        yield from calls(
            f"range {index}", range_limits, ((clustered, start, end) for start in bounds for end in bounds[::3])
        )
        yield f"too long {index}", lambda of=clustered, some=row: clustering_key(of, (*some, b""))  # type: ignore[misc]  # as above
    yield from calls("table", _table, tables)
    positions = [Position(epoch, segment, offset) for epoch, segment, offset in product(WORDS[:6], repeat=3)]
    records = [*map(position_to_json, positions), {"epoch": "1", "segment": 2.5, "offset": True}, {"epoch": 1}, ""]
    yield from calls("position", str, positions)
    yield from calls("position of", position_from_json, records)


def _table(of: Table) -> object:
    wider = replace(of, cdc=not of.cdc, flags=of.flags | {"counter"})
    return of, str(of), of.key, of.columns, wider.is_counter, columns_by_name(of), sharing(of, wider), wider == of


FAMILIES: Final[tuple[Family, ...]] = (_values, _keys, _types, _numbers, _addresses, _tokens, _tables)
