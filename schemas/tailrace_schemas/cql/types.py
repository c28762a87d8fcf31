"""CQL type strings, as `system_schema` prints them, to types that know their layout in the commit log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate
from typing import Final

from tailrace_schemas.errors import UnsupportedError
from tailrace_schemas.pickling import pickled_by_fields

# AbstractType.valueLengthIfFixed, equal in 3.11 to 5.0. smallint, tinyint, date and time are NOT here although
# their values have one size: Cassandra writes them with a length (ShortType, ByteType, SimpleDateType, TimeType).
FIXED_SIZES: Final[Mapping[str, int]] = {
    "boolean": 1,
    "int": 4,
    "bigint": 8,
    "float": 4,
    "double": 8,
    "uuid": 16,
    "timeuuid": 16,
    "timestamp": 8,
    "empty": 0,
}
NATIVE: Final[frozenset[str]] = frozenset(
    {"ascii", "blob", "counter", "date", "decimal", "duration", "inet", "smallint", "text", "time", "tinyint", "varint"}
    | FIXED_SIZES.keys()
)
COLLECTIONS: Final[frozenset[str]] = frozenset({"list", "set", "map"})

# How much of a schema's text a message shows.
_SHOWN: Final = 100
_MARSHAL: Final = "org.apache.cassandra.db.marshal."
# CQL has no word for this class, and it does not compare as uuid does: such a type keeps it as its name.
LEXICAL_UUID: Final = _MARSHAL + "LexicalUUIDType"
MAX_DEPTH: Final = 64
"""How many types may stand in one another, user types included: deeper ones would only overflow the stack."""
# ReservedKeywords of 3.11 to 5.0.
_RESERVED: Final = re.compile(
    "add|allow|alter|and|apply|asc|authorize|batch|begin|by|columnfamily|create|default|delete|desc|describe|drop|"
    "entries|execute|from|full|grant|if|in|index|infinity|insert|into|is|keyspace|limit|materialized|mbean|mbeans|"
    "modify|nan|norecursive|not|null|of|on|or|order|primary|rename|replace|revoke|schema|select|set|table|to|token|"
    "truncate|unlogged|unset|update|use|using|view|where|with"
)
# Classes that system_schema may name where CQL has a word of its own.
_CLASS_WORDS: Final[Mapping[str, str]] = {
    "AsciiType": "ascii",
    "BooleanType": "boolean",
    "ByteType": "tinyint",
    "BytesType": "blob",
    "CounterColumnType": "counter",
    "DateType": "timestamp",
    "DecimalType": "decimal",
    "DoubleType": "double",
    "DurationType": "duration",
    "EmptyType": "empty",
    "FloatType": "float",
    "InetAddressType": "inet",
    "Int32Type": "int",
    "IntegerType": "varint",
    "LegacyTimeUUIDType": "timeuuid",
    "LexicalUUIDType": "uuid",
    "LongType": "bigint",
    "ShortType": "smallint",
    "SimpleDateType": "date",
    "TimeType": "time",
    "TimeUUIDType": "timeuuid",
    "TimestampType": "timestamp",
    "UTF8Type": "text",
    "UUIDType": "uuid",
}
_TOKEN: Final = re.compile(r"""\s*(?:("(?:[^"]|"")*")|('(?:[^']|'')*')|([^\s<>,"']+)|([<>,]))""")


class TypeSyntaxError(ValueError):
    """A type string that is not CQL, or that names a user type nobody defined."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CqlType:
    """One CQL type.

    `kind` is a native type's word, or list, set, map, tuple, udt, vector, custom. `args` are element types (key and
    value for a map, fields in order for a tuple or udt). `name` is a udt's name, or the class of a type that CQL has
    no word for. `fields` are a udt's field names, `dimension` is a vector's length.

    A type is a graph: a user type that is used twice is one object. Written out as a tree it may have any size: five
    types of fifteen fields, each of the one before, have 759,375 leaves. So whatever descends visits each type once.
    """

    kind: str
    args: tuple[CqlType, ...] = ()
    frozen: bool = False
    name: str = ""
    fields: tuple[str, ...] = ()
    dimension: int = 0

    @property
    def multicell(self) -> bool:
        """Whether a column of this type is complex: one cell per element or field."""
        return not self.frozen and (self.kind in COLLECTIONS or self.kind == "udt")

    @property
    def fixed_size(self) -> int | None:
        """Bytes of every value, or None where values carry a length (AbstractType.valueLengthIfFixed)."""
        if self.kind == "vector":
            element = self.args[0].fixed_size
            return None if element is None else element * self.dimension
        return FIXED_SIZES.get(self.kind)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, CqlType) and _equal(self, other, set())

    def __hash__(self) -> int:
        # Not of all that is below: types are looked up by it, and one may have thousands of fields.
        first = self.args[0].kind + self.args[0].name if self.args else ""
        return hash((self.kind, self.frozen, self.name, self.fields, self.dimension, len(self.args), first))

    def __repr__(self) -> str:
        return f"CqlType({str(self)!r})"

    @property
    def _inner(self) -> str:
        return ", ".join([str(arg) for arg in self.args])

    def __str__(self) -> str:
        """The type as CQL prints it; parses back to an equal type."""
        match self.kind:
            case "list" | "set" | "map":
                text = f"{self.kind}<{self._inner}>"
            case "tuple":
                return f"frozen<tuple<{self._inner}>>"
            case "vector":
                return f"vector<{self._inner}, {self.dimension}>"
            case "udt":
                text = quote_identifier(self.name)
            case _:
                return "'" + self.name.replace("'", "''") + "'" if self.name else self.kind
        return f"frozen<{text}>" if self.frozen else text


pickled_by_fields(CqlType)


def _equal(first: CqlType, second: CqlType, compared: set[tuple[int, int]]) -> bool:
    """Whether two types are equal; `compared` has the pairs of ids that are, or are being, compared."""
    if first is second:
        return True
    pair = id(first), id(second)
    if pair in compared:
        return True
    compared.add(pair)
    if first.kind != second.kind or first.frozen != second.frozen or first.name != second.name:
        return False
    if first.fields != second.fields or first.dimension != second.dimension or len(first.args) != len(second.args):
        return False
    return all(_equal(a, b, compared) for a, b in zip(first.args, second.args, strict=True))


@lru_cache(maxsize=4096)
def shared(cql_type: CqlType) -> CqlType:
    """The object that stands for all types equal to this one, so that they compare and hash at once."""
    return cql_type


def parts(types: Iterable[CqlType]) -> Iterator[CqlType]:
    """These types and everything in them, each object once, parts before what they are part of."""
    visited = set[int]()
    for cql_type in types:
        yield from _parts(cql_type, visited)


def _parts(cql_type: CqlType, visited: set[int]) -> Iterator[CqlType]:
    if id(cql_type) in visited:
        return
    visited.add(id(cql_type))
    for argument in cql_type.args:
        yield from _parts(argument, visited)
    yield cql_type


def user_types_in(types: Iterable[CqlType]) -> tuple[CqlType, ...]:
    """The user types in these types, each name once, those that a type needs before it."""
    named: dict[str, CqlType] = {}
    for nested in parts(types):
        if nested.kind == "udt":
            named.setdefault(nested.name, nested)
    return tuple(named.values())


def leaves(cql_type: CqlType) -> int:
    """How many scalar values the type has, written out as a tree: what formats pay that have no named types."""
    counted: dict[int, int] = {}
    for nested in parts((cql_type,)):
        counted[id(nested)] = sum([counted[id(arg)] for arg in nested.args]) if nested.args else 1
    return counted[id(cql_type)]


def require_leaves(cql_type: CqlType, limit: int = 10_000) -> None:
    """Raise UnsupportedError for a type that is larger than this where it has to be written out as a tree."""
    if (count := leaves(cql_type)) > limit:
        raise UnsupportedError(
            f"type {_cut(str(cql_type))} has {count} values in one another, and {limit} are the most to write out. "
            'Drop the column (= "drop" in [stream] columns), or take a sink that keeps values as JSON'
        )


@lru_cache(maxsize=4096)
def freeze(cql_type: CqlType) -> CqlType:
    """The type with every collection and udt in it frozen, as frozen<...> freezes all below it."""
    if not cql_type.args:
        return cql_type
    nested = cql_type.kind in COLLECTIONS or cql_type.kind in ("udt", "tuple")
    args = tuple([freeze(arg) for arg in cql_type.args])
    if nested == cql_type.frozen and all(a is b for a, b in zip(args, cql_type.args, strict=True)):
        return cql_type
    return replace(cql_type, args=args, frozen=nested)


@dataclass(frozen=True, slots=True)
class UserTypeDefinition:
    """A row of `system_schema.types`: field names and their type strings, in order."""

    name: str
    field_names: tuple[str, ...]
    field_types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UserTypes:
    """One keyspace's user types by name. `resolved` has those that were parsed so far by their names.

    `parsed` has all type strings: each is parsed once, however many columns and fields have it.
    """

    definitions: Mapping[str, UserTypeDefinition]
    resolved: dict[str, CqlType] = field(default_factory=dict, compare=False)
    parsed: dict[str, CqlType] = field(default_factory=dict, compare=False)


def parse_type(text: str, user_types: UserTypes | Mapping[str, UserTypeDefinition] | None = None) -> CqlType:
    """Parse a type string of `system_schema`; user type names are looked up in `user_types` (one keyspace's).

    Raises TypeSyntaxError for anything else.
    """
    resolved = user_types if isinstance(user_types, UserTypes) else UserTypes(user_types or {})
    return require_shallow(_whole(text, resolved, ()))


def require_shallow(cql_type: CqlType) -> CqlType:
    """The type itself. Raises TypeSyntaxError where more than MAX_DEPTH types stand in one another.

    What it is made of must be shallow by itself.
    """
    if not cql_type.args:
        return cql_type
    depths: dict[int, int] = {}
    for nested in parts((cql_type,)):
        depths[id(nested)] = 1 + max([depths[id(arg)] for arg in nested.args], default=0)
    if depths[id(cql_type)] > MAX_DEPTH:
        raise TypeSyntaxError(f"type {_cut(str(cql_type))}: more than {MAX_DEPTH} types in one another")
    return cql_type


def _whole(text: str, user_types: UserTypes, outer: tuple[str, ...]) -> CqlType:
    if text in user_types.parsed:
        return user_types.parsed[text]
    tokens = list(_tokens(text))
    deepest = max(accumulate({"<": 1, ">": -1}.get(token, 0) for token in tokens), default=0)
    if deepest > MAX_DEPTH or len(outer) > MAX_DEPTH:
        raise TypeSyntaxError(f"type {_cut(text)}: more than {MAX_DEPTH} types in one another")
    parsed, rest = _parse(tokens, 0, user_types, outer)
    if rest != len(tokens):
        raise TypeSyntaxError(f"type {_cut(text)}: unexpected {tokens[rest]!r} after {_cut(str(parsed))}")
    user_types.parsed[text] = parsed
    return parsed


def _cut(text: str) -> str:
    """Text of a schema, quoted, short enough for a message: names may have 64 KiB."""
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}..."


def quote_identifier(name: str) -> str:
    """A CQL identifier, quoted where an unquoted one would fold or not parse (ColumnIdentifier.maybeQuote).

    Words that only some versions reserve are quoted too.
    """
    if re.fullmatch(r"[a-z][a-z0-9_]*", name) and _RESERVED.fullmatch(name) is None:
        return name
    return '"' + name.replace('"', '""') + '"'


def _tokens(text: str) -> Iterator[str]:
    offset, end = 0, len(text.rstrip())
    while offset < end:
        match = _TOKEN.match(text, offset)
        if match is None:
            raise TypeSyntaxError(f"type {_cut(text)}: cannot read {_cut(text[offset:])}")
        offset = match.end()
        yield match[match.lastindex or 0]


def _parse(tokens: list[str], index: int, user_types: UserTypes, outer: tuple[str, ...]) -> tuple[CqlType, int]:
    if index >= len(tokens):
        raise TypeSyntaxError("type string ends too early")
    word = tokens[index]
    if index + 1 == len(tokens) or tokens[index + 1] != "<":
        return _word(word, user_types, outer), index + 1
    args: list[CqlType] = []
    index += 2
    while True:
        argument, index = _parse(tokens, index, user_types, outer)
        args.append(argument)
        if index == len(tokens) or tokens[index] != ",":
            break
        index += 1
        if word.lower() == "vector":
            return _vector(argument, tokens, index), index + 2
    _expect(tokens, index, ">")
    return _apply(word.lower(), tuple(args)), index + 1


def _vector(element: CqlType, tokens: list[str], index: int) -> CqlType:
    dimension = tokens[index] if index < len(tokens) else ""
    if re.fullmatch("[1-9][0-9]{0,8}", dimension) is None:
        raise TypeSyntaxError(f"a vector's dimension is a number from 1, not {dimension!r}")
    _expect(tokens, index + 1, ">")
    return CqlType("vector", (freeze(element),), dimension=int(dimension))


def _expect(tokens: list[str], index: int, token: str) -> None:
    actual = tokens[index] if index < len(tokens) else "the end"
    if actual != token:
        raise TypeSyntaxError(f"type string: expected {token!r}, found {actual!r}")


def _apply(word: str, args: tuple[CqlType, ...]) -> CqlType:
    arity = {"frozen": 1, "list": 1, "set": 1, "map": 2}.get(word)
    if arity is not None and len(args) != arity:
        raise TypeSyntaxError(f"{word} takes {arity} arguments, not {len(args)}")
    match word:
        case "frozen":
            return freeze(args[0])
        case "list" | "set" | "map":
            # A collection nested in another is always frozen, whether the string says so or not.
            return CqlType(word, tuple(freeze(arg) for arg in args))
        case "tuple":
            return CqlType("tuple", tuple(freeze(arg) for arg in args), frozen=True)
        case _:
            raise TypeSyntaxError(f"unknown type {word}<...>")


def _word(word: str, user_types: UserTypes, outer: tuple[str, ...]) -> CqlType:
    if word.startswith("'"):
        name = word[1:-1].replace("''", "'")
        kind = _CLASS_WORDS.get(name.removeprefix(_MARSHAL))
        if kind is None:
            return CqlType("custom", name=name)
        return CqlType(kind, name=LEXICAL_UUID if name.endswith("LexicalUUIDType") else "")
    if word in ("<", ">", ","):
        raise TypeSyntaxError(f"type string: unexpected {word!r}")
    if word.startswith('"'):
        name = word[1:-1].replace('""', '"')
    else:
        # CQL's own words come first, as in Cassandra's grammar: a user type may only hide behind them in quotes.
        name = word.lower()
        if name == "varchar":
            return CqlType("text")
        if name in NATIVE:
            return CqlType(name)
    return user_types.resolved.get(name) or _user_type(name, user_types, outer)


def _user_type(name: str, user_types: UserTypes, outer: tuple[str, ...]) -> CqlType:
    definition = user_types.definitions.get(name)
    if definition is None or name in outer:
        raise TypeSyntaxError(f"type {_cut(name)} is neither a CQL type nor a user type of this keyspace")
    # Whatever stands in a user type is frozen, whether the string says so or not.
    frozen = {text: freeze(_whole(text, user_types, (*outer, name))) for text in dict.fromkeys(definition.field_types)}
    fields = tuple([frozen[text] for text in definition.field_types])
    resolved = shared(CqlType("udt", fields, name=name, fields=definition.field_names))
    user_types.resolved[name] = resolved
    return resolved
