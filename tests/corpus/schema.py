"""Random keyspaces: user types and tables that have a column of each type, and what is altered of them later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

from tailrace_schemas.table import Table
from tests.corpus.kinds import EVERY_KIND, Kinds
from tests.corpus.release import Dialect

_SCALARS: Final = (
    "ascii", "bigint", "blob", "boolean", "date", "decimal", "double", "duration", "float", "inet", "int", "smallint",
    "text", "time", "timestamp", "timeuuid", "tinyint", "uuid", "varint",
)  # fmt: skip
_NESTED: Final = (
    "frozen<list<text>>", "frozen<set<int>>", "frozen<map<text, bigint>>", "frozen<inner_type>", "frozen<outer_type>",
    "tuple<int, text, frozen<set<uuid>>>", "list<tinyint>", "list<frozen<inner_type>>", "list<frozen<map<int, text>>>",
    "set<text>", "set<decimal>", "set<frozen<tuple<int, boolean>>>", "map<text, int>", "map<timeuuid, blob>",
    "map<int, frozen<list<varint>>>", "inner_type", "outer_type",
)  # fmt: skip
_VECTORS: Final = (
    "vector<float, 3>",
    "vector<text, 2>",
    "vector<frozen<list<int>>, 2>",
    "list<frozen<vector<int, 2>>>",
)
_KEYS: Final = (*[scalar for scalar in _SCALARS if scalar != "duration"], "frozen<list<int>>", "frozen<key_type>")
_LISTS: Final = ("list<tinyint>", "list<frozen<inner_type>>")
_WIDE: Final = 70
_LONE: Final = "lone"


def creations(random: Random, keyspace: str, dialect: Dialect) -> Iterator[str]:
    """The statements that make a keyspace with everything in it, each table with cdc = true but one."""
    yield from _keyspace(keyspace, 1)
    types = _types(dialect)
    random.shuffle(types)
    shared = random.choice(_KEYS)
    thirds = [types[start::3] for start in range(3)]
    yield _table(random, f"{keyspace}.first", [shared], _some_keys(random, 1, 3), thirds[0])
    yield _table(random, f"{keyspace}.second", [shared], _some_keys(random, 1, 2), thirds[1])
    yield _table(random, f"{keyspace}.third", _some_keys(random, 1, 3), _some_keys(random, 0, 3), thirds[2])
    yield _table(random, f"{keyspace}.wide", ["int"], ["text"], ["int"] * _WIDE)
    yield _table(random, f"{keyspace}.{_LONE}", _some_keys(random, 1, 2), [], random.sample(types, 6))
    yield _table(random, f"{keyspace}.quiet", [shared], ["int"], random.sample(types, 4)).replace("true", "false")
    if dialect.compact:
        yield (
            f"CREATE TABLE {keyspace}.dense (p0 {shared}, c0 int, c1 text, v0 text, PRIMARY KEY (p0, c0, c1)) "
            f"WITH COMPACT STORAGE AND{_ordered(random, ['int', 'text']).removeprefix(' WITH')} cdc = true"
        )
    yield _counters(random, keyspace, shared)


def few_creations(
    random: Random, keyspace: str, dialect: Dialect, kinds: Kinds = EVERY_KIND, *, replication: int = 1
) -> Iterator[str]:
    """A small keyspace: two tables of a shared partition key that have each type at times, one with a column
    at the most, and at times another one."""
    yield from _keyspace(keyspace, replication)
    types = [cql_type for cql_type in _types(dialect) if kinds.lists or not cql_type.startswith("list<")]
    random.shuffle(types)
    shared = random.choice(_KEYS)
    keys, lists = _some_keys(random, 1, 3), [random.choice(_LISTS)] if kinds.lists else []
    yield _table(random, f"{keyspace}.first", [shared], keys, [*types[:8], *lists], kinds=kinds)
    yield _table(random, f"{keyspace}.second", [shared], _some_keys(random, 0, 2), types[8:14], kinds=kinds)
    if random.random() < 0.3:
        keys = _some_keys(random, 1, 3)
        yield _table(random, f"{keyspace}.{_LONE}", keys, _some_keys(random, 0, 1), types[14:18], kinds=kinds)
    if random.random() < 0.3:
        yield _table(
            random,
            f"{keyspace}.bare",
            [shared],
            _some_keys(random, 1, 1),
            types[18 : random.choice((18, 19))],
            kinds=kinds,
        )
    if kinds.counters and random.random() < 0.5:
        yield _counters(random, keyspace, shared)


def alterations(
    random: Random,
    keyspace: str,
    tables: Sequence[Table],
    dialect: Dialect,
    kinds: Kinds = EVERY_KIND,
    *,
    most: int = 2,
) -> Iterator[str]:
    """What happens to the schema midway: columns dropped, added and added again, a user type that grows.

    Of each table `most` columns are dropped.
    """
    if any(table.name == _LONE for table in tables):
        # Dropped, and there again, under another id.
        yield f"DROP TABLE {keyspace}.{_LONE}"
        columns = random.sample(_NESTED, 6)
        yield _table(random, f"{keyspace}.{_LONE}", ["int"], ["text", "int"], columns, kinds=kinds)
    for table in tables:
        if table.is_counter or table.name == _LONE or "dense" in table.flags:
            continue
        # "Cannot drop non-frozen column of user type".
        droppable = [column for column in table.columns if not (column.type.multicell and column.type.kind == "udt")]
        for column in random.sample(droppable, min(most, len(droppable))):
            static = " static" if column in table.static else ""
            yield f"ALTER TABLE {table} DROP {column.name}"
            # A user type is remembered as a tuple, and that no column of a user type can follow.
            if random.random() < 0.6 and "_type" not in str(column.type):
                yield f"ALTER TABLE {table} ADD {column.name} {column.type}{static}"
        yield f"ALTER TABLE {table} ADD n{random.getrandbits(32):x} {random.choice(_types(dialect))}"
    yield f"ALTER TYPE {keyspace}.inner_type ADD g{random.getrandbits(32):x} text"


def _keyspace(keyspace: str, replication: int) -> Iterator[str]:
    """The keyspace and its user types."""
    strategy = f"{{'class': 'SimpleStrategy', 'replication_factor': {replication}}}"
    yield f"CREATE KEYSPACE {keyspace} WITH replication = {strategy}"
    # One that never grows: "the type is being used in partition key".
    yield f"CREATE TYPE {keyspace}.key_type (n int, t text)"
    yield f"CREATE TYPE {keyspace}.inner_type (n int, t text, d double)"
    yield f"CREATE TYPE {keyspace}.outer_type (i frozen<inner_type>, l frozen<list<bigint>>, v varint)"


def _types(dialect: Dialect) -> list[str]:
    return [*_SCALARS, *_NESTED, *(_VECTORS if dialect.vectors else ())]


def _counters(random: Random, keyspace: str, partition: str) -> str:
    return (
        f"CREATE TABLE {keyspace}.counters (p0 {partition}, c0 int, c1 text, s0 counter static, v0 counter, "
        f"v1 counter, PRIMARY KEY (p0, c0, c1)){_ordered(random, ['int', 'text'])} cdc = true"
    )


def _table(
    random: Random,
    name: str,
    partition: list[str],
    clustering: list[str],
    types: Sequence[str],
    *,
    kinds: Kinds = EVERY_KIND,
) -> str:
    keys = [f"p{at} {cql_type}" for at, cql_type in enumerate(partition)]
    keys += [f"c{at} {cql_type}" for at, cql_type in enumerate(clustering)]
    columns = [
        f"v{at} {cql_type}{' static' if clustering and random.random() < 0.2 else ''}"
        for at, cql_type in enumerate(types)
    ]
    first = ", ".join(f"p{at}" for at in range(len(partition)))
    rest = "".join(f", c{at}" for at in range(len(clustering)))
    body = ", ".join([*keys, *columns])
    order = _ordered(random, clustering) or " WITH"
    if random.random() < 0.2 and not kinds.lasting:
        order += f" default_time_to_live = {random.choice((3, 90_000) if kinds.expiries else (90_000,))} AND"
    return f"CREATE TABLE {name} ({body}, PRIMARY KEY (({first}){rest})){order} cdc = true"


def _ordered(random: Random, clustering: Sequence[str]) -> str:
    if not clustering:
        return ""
    order = ", ".join(f"c{at} {random.choice(('ASC', 'DESC'))}" for at in range(len(clustering)))
    return f" WITH CLUSTERING ORDER BY ({order}) AND"


def _some_keys(random: Random, least: int, most: int) -> list[str]:
    return [random.choice(_KEYS) for _ in range(random.randint(least, most))]
