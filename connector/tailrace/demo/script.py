"""The script of changes: two tables, and statements of every kind over few rows, so that they meet.

Left out, because a table that is compared has none: counters, values that expire, TRUNCATE.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from random import Random
from typing import Final

_WORDS: Final = ("tea", "rice", "salt", "café", "Öl", "寿司", "it's", "", "a b", "x" * 40)
_DAYS: Final = ("1969-12-31", "1970-01-01", "2000-02-29", "2024-06-30", "2099-12-31")
KEYSPACE: Final = "shop"
TABLES: Final = ("orders", "readings")


def text(value: str) -> str:
    """A string literal."""
    return "'" + value.replace("'", "''") + "'"


def word(random: Random) -> str:
    """A string literal, now and then empty, long, quoted or beyond ASCII."""
    return text(random.choice(_WORDS))


def signed(bits: int) -> Callable[[Random], str]:
    """Integers of so many bits, the outermost ones among them."""

    def literal(random: Random) -> str:
        edge = 1 << (bits - 1)
        return str(random.choice((-edge, -1, 0, 1, edge - 1, random.randrange(-edge, edge))))

    return literal


def decimal(random: Random) -> str:
    """Exact numbers with trailing zeros, many digits and exponents."""
    unscaled = random.choice((0, 1, -1, 10**20 + 1, random.randrange(-(10**9), 10**9)))
    return f"{unscaled}e{-random.randrange(0, 6)}"


def address(random: Random) -> str:
    """A shop.address, its fields null now and then."""
    street, city = word(random), random.choice(("null", word(random)))
    return f"{{street: {street}, city: {city}, code: {random.randrange(100000)}}}"


def _timeuuid(random: Random) -> str:
    return str(uuid.UUID(fields=(random.getrandbits(32), 0xE57F, 0x11F0, 0x85, random.getrandbits(8), 1), version=1))


LITERALS: Final[Mapping[str, Callable[[Random], str]]] = {
    "boolean": lambda random: random.choice(("true", "false")),
    "tinyint": signed(8),
    "smallint": signed(16),
    "int": signed(32),
    "bigint": signed(64),
    "float": lambda random: random.choice(("NaN", "Infinity", "0.5", "-1.25", "3.4e38", str(random.random()))),
    "double": lambda random: random.choice(("NaN", "-Infinity", "0.1", "-2.5e-300", str(random.random()))),
    "varint": lambda random: str(random.choice((0, -1, 128, -(2**64), 123456789012345678901234567890))),
    "decimal": decimal,
    "ascii": lambda random: text(random.choice(("plain", "", "~!@#", "it's"))),
    "text": word,
    "blob": lambda random: "0x" + random.randbytes(random.randrange(8)).hex(),
    "uuid": lambda random: str(uuid.UUID(int=random.getrandbits(128), version=4)),
    "timeuuid": _timeuuid,
    "inet": lambda random: text(random.choice(("127.0.0.1", "10.0.0.255", "2001:db8::1", "::1"))),
    "timestamp": lambda random: str(random.randrange(-(10**12), 4 * 10**12)),
    "date": lambda random: text(random.choice(_DAYS)),
    "time": lambda random: str(random.randrange(86_400 * 10**9)),
    "duration": lambda random: random.choice(("1mo3d500ns", "-2mo", "12h30m", "1y2mo", "0s")),
    "vector<float, 3>": lambda random: f"[{random.random()}, {random.random()}, -1.5]",
    "tuple<int, text>": lambda random: f"({random.randrange(100)}, {random.choice(('null', word(random)))})",
    "frozen<list<int>>": lambda random: str([random.randrange(-9, 9) for _ in range(random.randrange(4))]),
    "frozen<map<text, bigint>>": lambda random: f"{{'low': {random.randrange(9)}, 'high': {random.getrandbits(62)}}}",
    "frozen<address>": address,
}
"""A literal for each type of shop.readings."""


COLUMNS: Final = {
    f"{cql_type.removeprefix('frozen<').partition('<')[0].rstrip('>')}_value": cql_type for cql_type in LITERALS
}
"""The columns of shop.readings beside its key, one of each type, and their types."""

SCHEMA: Final = (
    "CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TYPE shop.address (street text, city text, code int)",
    "CREATE TABLE shop.orders (customer text, number int, vip boolean static, credit decimal static, status text, "
    "total decimal, notes list<text>, items map<text, int>, tags set<text>, ship_to address, "
    "PRIMARY KEY (customer, number)) WITH CLUSTERING ORDER BY (number DESC) AND cdc = true",
    "CREATE TABLE shop.readings (site text, sensor int, seq bigint, "
    + ", ".join(f"{name} {cql_type}" for name, cql_type in COLUMNS.items())
    + ", PRIMARY KEY ((site, sensor), seq)) WITH cdc = true",
)
"""The statements that make the tables, in order."""

LAST: Final = "the end"
"""The first key column of the rows that are written last: once these are in Kafka, everything before them is."""
LAST_STATEMENTS: Final = (
    "INSERT INTO shop.orders (customer, number) VALUES ('the end', 0)",
    "INSERT INTO shop.readings (site, sensor, seq) VALUES ('the end', 0, 0)",
)

# How often, and a statement, or several in a row. A $name is drawn once for them all. A list is edited by index where
# it has that one. The first batch is of one partition, so one mutation: a deletion, a newer row, a static column.
_TEMPLATES: Final = """\
6 INSERT INTO shop.orders (customer, number, status, total, notes, items, tags, ship_to) VALUES ($customer, $number, \
$word, $decimal, [$word], {'tea': $number, 'salt': 1}, {'new', 'gift'}, $address)$at
2 INSERT INTO shop.orders (customer, number, status, tags) VALUES ($customer, $number, null, {'gift'})$at
4 UPDATE shop.orders$at SET status = $word WHERE $order
3 UPDATE shop.orders$at SET status = $word, total = $decimal WHERE $order
2 UPDATE shop.orders$at SET vip = $boolean WHERE customer = $customer
2 UPDATE shop.orders$at SET credit = $decimal WHERE customer = $customer
1 DELETE vip FROM shop.orders WHERE customer = $customer
2 UPDATE shop.orders SET notes = notes + [$word] WHERE $order
2 UPDATE shop.orders SET notes = [$word] + notes WHERE $order
1 UPDATE shop.orders SET notes = notes - [$word] WHERE $order
2 UPDATE shop.orders SET notes = ['a', $word] WHERE $order | UPDATE shop.orders SET notes[1] = 'B' WHERE $order
2 UPDATE shop.orders SET notes = ['a', $word] WHERE $order | DELETE notes[0] FROM shop.orders WHERE $order
2 UPDATE shop.orders$at SET items = items + {'rice': 2}, items['tea'] = 7 WHERE $order
2 UPDATE shop.orders$at SET items = items - {'salt'} WHERE $order
2 DELETE items['tea'] FROM shop.orders WHERE $order
2 UPDATE shop.orders$at SET tags = tags + {'late'} WHERE $order
2 UPDATE shop.orders$at SET tags = {'only'} WHERE $order
2 UPDATE shop.orders$at SET ship_to.city = 'York' WHERE $order
2 UPDATE shop.orders$at SET ship_to = $address WHERE $order
2 DELETE total, tags FROM shop.orders$at WHERE $order
1 DELETE FROM shop.orders$at WHERE $order
1 DELETE FROM shop.orders$at WHERE customer = $customer AND number > 2 AND number <= $number
1 DELETE FROM shop.orders$at WHERE customer = $customer
2 INSERT INTO shop.orders (customer, number, total) VALUES ($customer, $number, $decimal) IF NOT EXISTS
2 UPDATE shop.orders SET total = 1.50 WHERE $order IF total != 1.50
1 DELETE FROM shop.readings WHERE $reading IF EXISTS
2 BEGIN UNLOGGED BATCH DELETE FROM shop.orders USING TIMESTAMP $older WHERE $order; \
INSERT INTO shop.orders (customer, number, total) VALUES ($customer, $number, $decimal) USING TIMESTAMP $newer; \
UPDATE shop.orders USING TIMESTAMP $newer SET credit = 2.50 WHERE customer = $customer; APPLY BATCH
2 BEGIN BATCH UPDATE shop.orders SET status = 'batched', tags = tags + {'batch'} WHERE $order; \
DELETE FROM shop.orders WHERE customer = $customer AND number > 10; \
UPDATE shop.readings SET text_value = 'batched' WHERE $reading; APPLY BATCH
6 INSERT INTO shop.readings $reading_row$soon
6 UPDATE shop.readings$soon SET $reading_values WHERE $reading
1 DELETE text_value, int_value FROM shop.readings$at WHERE $reading
1 DELETE FROM shop.readings$at WHERE $reading
1 DELETE FROM shop.readings$at WHERE site = $site AND sensor = $sensor AND seq > 3 AND seq < 6
1 DELETE FROM shop.readings$at WHERE site = $site AND sensor = $sensor
"""
_WHERE: Final = {
    r"\$order\b": "customer = $customer AND number = $number",
    r"\$reading\b": "site = $site AND sensor = $sensor AND seq = $seq",
}
_HOUR_MICROS: Final = 3_600_000_000
_Literal = Callable[[Random], str]


def templates() -> Iterator[tuple[int, tuple[str, ...]]]:
    """How often each is taken, and its statements with $names."""
    for line in _TEMPLATES.splitlines():
        often, _, text = line.partition(" ")
        for name, condition in _WHERE.items():
            text = re.sub(name, condition, text)
        yield int(often), tuple(text.split(" | "))


def statements(seed: int, now_micros: int) -> Iterator[str]:
    """Statements without end, the same for the same seed.

    Write times of their own lie around `now_micros`, microseconds since the epoch.
    """
    random = Random(seed)  # noqa: S311 - a script has to be repeatable, not secret
    draws = _draws(random, now_micros)
    weights, lines = zip(*templates(), strict=True)
    for line in [line for line in lines if line[0].startswith("INSERT")] * 4:  # rows that the others meet
        yield from _filled(line, draws)
    while True:
        yield from _filled(random.choices(lines, weights)[0], draws)


def _filled(line: tuple[str, ...], draws: Mapping[str, Callable[[], str]]) -> Iterator[str]:
    drawn: dict[str, str] = {}

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name not in drawn:
            drawn[name] = draws[name]()
        return drawn[name]

    for template in line:
        yield re.sub(r"\$(\w+)", value, template)


def _draws(random: Random, now: int) -> Mapping[str, Callable[[], str]]:
    """What a $name of a template stands for."""
    keys: Mapping[str, _Literal] = {
        "customer": lambda _: f"'{random.choice(('ada', 'bob', 'cyd', 'dee', 'eva', 'fox'))}'",
        "number": lambda _: str(random.randrange(1, 13)),
        "site": lambda _: random.choice(("'north'", "'south'")),
        "sensor": lambda _: str(random.randrange(1, 4)),
        "seq": lambda _: str(random.randrange(1, 9)),
    }
    reading: Mapping[str, _Literal] = {name: LITERALS[cql_type] for name, cql_type in COLUMNS.items()}

    def some(count: int) -> dict[str, str]:
        names = random.sample([*reading], random.randrange(1, count + 1))
        return {name: "null" if random.random() < 0.1 else reading[name](random) for name in names}

    def row() -> str:
        values = {**{name: keys[name](random) for name in ("site", "sensor", "seq")}, **some(len(reading))}
        return f"({', '.join(values)}) VALUES ({', '.join(values.values())})"

    def time(latest: int) -> str:
        """For one statement in five a write time of its own, from an hour ago up to so much after now."""
        return "" if random.random() < 0.8 else f" USING TIMESTAMP {now + random.randrange(-_HOUR_MICROS, latest)}"

    literals = {**keys, "word": word, "decimal": decimal, "address": address, "boolean": LITERALS["boolean"]}
    return {
        **{name: partial(literal, random) for name, literal in literals.items()},
        "reading_row": row,
        "reading_values": lambda: ", ".join(f"{name} = {value}" for name, value in some(4).items()),
        "at": lambda: time(0),
        "soon": lambda: time(_HOUR_MICROS // 60),
        "older": lambda: str(now - 2 * _HOUR_MICROS),
        "newer": lambda: str(now - _HOUR_MICROS),
    }
