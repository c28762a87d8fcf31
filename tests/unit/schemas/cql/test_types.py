"""Type strings as system_schema has them: parsed, printed back, and refused."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cassandra import cqltypes
from hypothesis import given

from tailrace_schemas.cql.types import (
    LEXICAL_UUID,
    NATIVE,
    CqlType,
    TypeSyntaxError,
    UserTypeDefinition,
    freeze,
    parse_type,
    quote_identifier,
)
from tests.unit.schemas.cql.driver import types

FIXTURES = sorted((Path(__file__).parents[3] / "fixtures" / "commitlog").rglob("schema.jsonl.gz"))
USER_TYPES = {
    "addr": UserTypeDefinition("addr", ("street", "zip", "tags"), ("text", "int", "frozen<set<text>>")),
    "Odd Name": UserTypeDefinition("Odd Name", ("x",), ('frozen<"select">',)),
    "select": UserTypeDefinition("select", ("y",), ("list<int>",)),
    "text": UserTypeDefinition("text", ("z",), ("int",)),
}
# What system_schema of 3.11, 4.0 and 5.0 prints.
PRINTED = [
    *sorted(NATIVE),
    "list<int>",
    "set<text>",
    "map<int, int>",
    "addr",
    "frozen<addr>",
    'frozen<"Odd Name">',
    '"select"',
    "frozen<list<int>>",
    "frozen<set<text>>",
    "frozen<map<int, text>>",
    "frozen<tuple<int, text, boolean>>",
    "map<int, frozen<list<frozen<tuple<int, text>>>>>",
    "map<text, frozen<map<uuid, frozen<addr>>>>",
    "vector<float, 3>",
    "vector<frozen<list<int>>, 2>",
    "vector<vector<float, 2>, 3>",
    "frozen<list<vector<text, 2>>>",
    "'org.apache.cassandra.db.marshal.LexicalUUIDType'",
    "'org.apache.cassandra.db.marshal.CompositeType(org.apache.cassandra.db.marshal.UTF8Type,"
    "org.apache.cassandra.db.marshal.Int32Type)'",
    "'org.apache.cassandra.db.marshal.DynamicCompositeType(a=>org.apache.cassandra.db.marshal.AsciiType)'",
    "'com.example.It''s'",
]


@pytest.mark.parametrize("text", PRINTED)
def test_printed_types_come_back(text: str) -> None:
    assert str(parse_type(text, USER_TYPES)) == text


@given(types())
def test_every_type_comes_back(cql_type: CqlType) -> None:
    assert parse_type(str(cql_type), dict(_definitions(cql_type))) == cql_type


def _definitions(cql_type: CqlType) -> Iterator[tuple[str, UserTypeDefinition]]:
    for arg in cql_type.args:
        yield from _definitions(arg)
    if cql_type.kind == "udt":
        fields = tuple(str(arg) for arg in cql_type.args)
        yield cql_type.name, UserTypeDefinition(cql_type.name, cql_type.fields, fields)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("'org.apache.cassandra.db.marshal.BytesType'", "blob"),
        ("'org.apache.cassandra.db.marshal.TimestampType'", "timestamp"),
        ("'org.apache.cassandra.db.marshal.DateType'", "timestamp"),
        ("'org.apache.cassandra.db.marshal.LegacyTimeUUIDType'", "timeuuid"),
        ("'EmptyType'", "empty"),
        ("varchar", "text"),
        (" INT ", "int"),
    ],
)
def test_other_spellings(text: str, kind: str) -> None:
    assert parse_type(text) == CqlType(kind)


WORDS = {name: kind.typename for name, kind in cqltypes._casstypes.items() if kind.typename in NATIVE}


@pytest.mark.parametrize("name", sorted(WORDS.keys() - {"VarcharType"}))  # Cassandra has no such class
def test_classes_are_the_words_that_the_driver_has_for_them(name: str) -> None:
    assert parse_type(f"'org.apache.cassandra.db.marshal.{name}'") == CqlType(WORDS[name])


def test_a_class_with_an_order_of_its_own_stays_itself() -> None:
    lexical = parse_type("'org.apache.cassandra.db.marshal.LexicalUUIDType'")
    assert lexical == CqlType("uuid", name=LEXICAL_UUID)
    assert lexical.fixed_size == 16


def test_own_words_come_before_user_types() -> None:
    assert parse_type("frozen<list<text>>", USER_TYPES).args == (CqlType("text"),)
    assert parse_type('frozen<"text">', USER_TYPES).fields == ("z",)


def test_nested_types_are_frozen() -> None:
    loose = parse_type("map<int, list<set<int>>>")
    assert loose.multicell
    assert str(loose) == "map<int, frozen<list<frozen<set<int>>>>>"
    assert str(parse_type("vector<list<int>, 2>")) == "vector<frozen<list<int>>, 2>"
    address = parse_type("addr", USER_TYPES)
    assert address.multicell
    assert not parse_type("frozen<addr>", USER_TYPES).multicell
    assert all(not arg.multicell for arg in parse_type('"Odd Name"', USER_TYPES).args)
    assert freeze(freeze(loose)) == freeze(loose)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("int", 4), ("smallint", None), ("tinyint", None), ("date", None), ("time", None), ("timestamp", 8),
        ("text", None), ("empty", 0), ("vector<float, 3>", 12), ("vector<vector<float, 2>, 3>", 24),
        ("vector<smallint, 3>", None), ("vector<vector<text, 2>, 3>", None), ("frozen<list<int>>", None),
        ("frozen<tuple<int>>", None),
    ],
)  # fmt: skip
def test_sizes(text: str, size: int | None) -> None:
    assert parse_type(text).fixed_size == size


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "<", "list", "list<", "list<int", "list<int>>", "list<int, int>", "map<int>", "list<>", "vector<int>",
        "vector<int, 0>", "vector<int, x>", "vector<int, ²>", "vector<int, 3", "vector<int, 3, 4>", "tuple<",
        "frozen<int, int>", "'x", '"u"', "u", "x<int>", "int int", "int,", "list<int,>", '"list"<int>',
        "frozen<" * 100 + "int" + ">" * 100,
    ],
)  # fmt: skip
def test_what_is_no_type(text: str) -> None:
    with pytest.raises(TypeSyntaxError):
        parse_type(text)


def test_a_user_type_in_itself() -> None:
    with pytest.raises(TypeSyntaxError):
        parse_type("loop", {"loop": UserTypeDefinition("loop", ("a",), ("frozen<loop>",))})


@pytest.mark.parametrize(
    ("name", "quoted"),
    [("a_1", "a_1"), ("A", '"A"'), ("1a", '"1a"'), ("order", '"order"'), ('a"b', '"a""b"'), ("é", '"é"'), ("", '""')],
)
def test_identifiers(name: str, quoted: str) -> None:
    assert quote_identifier(name) == quoted


def test_there_are_recorded_schemas() -> None:
    assert FIXTURES


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: "-".join(path.parts[-3:-1]))
def test_types_of_recorded_schemas(path: Path) -> None:
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    defined = {
        row["row"]["type_name"]: UserTypeDefinition(
            row["row"]["type_name"], tuple(row["row"]["field_names"]), tuple(row["row"]["field_types"])
        )
        for row in rows
        if row["table"] == "types"
    }
    printed = [row["row"]["type"] for row in rows if row["table"] in ("columns", "dropped_columns")]
    assert [str(parse_type(text, defined)) for text in printed] == printed
    assert printed
