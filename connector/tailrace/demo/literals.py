"""Random CQL literals of each type, so that a script of changes is plain text that anybody can run again."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from random import Random
from typing import Final

_WORDS: Final = ("tea", "rice", "salt", "café", "Öl", "寿司", "it's", "", "a b", "x" * 40)
_DAYS: Final = ("1969-12-31", "1970-01-01", "2000-02-29", "2024-06-30", "2099-12-31")


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
