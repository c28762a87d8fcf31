"""What the entry points are given: bytes as they were recorded and made, and the same bytes damaged; numbers; changes.

Everything comes from seeds, so that both processes have the same. Hypothesis takes constants of the sources too, which
compiled code has not: its strategies would give others.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Final
from zlib import crc32

from tailrace_schemas.change import Bound, Cell, Change, ColumnDeletion, Deletion, Marker, Op
from tailrace_schemas.cql.types import CqlType, parse_type
from tailrace_schemas.cql.vint import write_unsigned
from tailrace_schemas.position import Position
from tailrace_schemas.table import Column, Table
from tests.corpus.check import changes_in
from tests.corpus.corpus import Corpus
from tests.corpus.keeping import VERSIONS, kept
from tests.differential.cases import examples
from tests.unit.changes.recorded import changes_in as recorded_changes
from tests.unit.commitlog.recorded import KINDS
from tests.unit.schemas.cql.driver import NATIVE
from tests.unit.schemas.cql.hostile import OPEN, USER_TYPES, WHOLE
from tests.unit.schemas.cql.ordered import TYPES
from tests.unit.spark.cassandra import truncate, with_source
from tests.unit.spark.changes import OF_ANY_BYTES, PLAIN
from tests.unit.spark.sinks.hostile import EXTREMES, FIELDS, NAMES, extremes, row

HOSTS: Final = ("11111111-0000-0000-0000-000000000000", "22222222-0000-0000-0000-000000000000")
WORDS: Final = (
    0, 1, -1, 2, 63, 64, 127, 128, -128, -129, 255, 256, 32_767, 32_768, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1,
    2**32 - 1, 2**32, 2**53, 2**61, 2**62 - 1, 2**62, -(2**62), -(2**62) - 1, 2**63 - 1, -(2**63), -(2**63) + 1,
    1_700_000_000_000_000,
)  # fmt: skip
"""Numbers of 64 bits, with a sign, at which something changes."""
_PATCHES: Final = (
    b"\xff" * 9, b"\xff\x80" + bytes(7), b"\xff\x7f" + b"\xff" * 7, b"\xff" + bytes(7) + b"\x01", b"\xfe" + b"\xff" * 7,
    b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff", bytes(8), b"\xff" * 9 + b"\x01",
    b"\x80" * 9 + b"\x01", b"\xfe" + b"\xff" * 8 + b"\x01", b"\x80" * 12, b"\xff" * 20, b"\x00", b"\x01", b"\x80",
)  # fmt: skip
"""Lengths and numbers that are huge or negative: as vints of Cassandra, as Avro's, as words of 32 and 64 bits."""
_SCALARS: Final = (*NATIVE, "counter", "empty")
_NESTED: Final = ("", "list", "set", "map", "tuple", "udt", "vector")
_SIZES: Final = {"smallint": 2, "tinyint": 1, "date": 4, "time": 8, "inet": 16}
_LARGE: Final = 1_000


def damaged(random: Random, data: bytes, count: int) -> Iterator[bytes]:
    """The bytes with about `count` damages: cut, flipped, overwritten, or with something put in or behind them."""
    yield data
    for cut in range(len(data)) if len(data) <= count // 3 else random.sample(range(len(data)), count // 3):
        yield data[:cut]
    for _ in range(count - min(len(data), count // 3)):
        offset, patch = random.randint(0, len(data)), random.choice(_PATCHES)
        match random.randrange(4):
            case 0 if data:
                flipped = bytearray(data)
                for _ in range(random.choice((1, 1, 1, 3))):
                    flipped[random.randrange(len(data))] ^= 1 << random.randrange(8)
                yield bytes(flipped)
            case 1:
                yield data[:offset] + patch + data[offset + len(patch) :]
            case 2:
                yield data[:offset] + patch + data[offset + random.choice((0, 1)) :]
            case _:
                yield data[:offset] + random.randbytes(random.choice((1, 2, 8))) + data[offset:]


def some_type(random: Random, depth: int) -> CqlType:
    """A frozen type, nested up to so deep."""
    kind = random.choice(_NESTED if depth else ("",))
    if not kind:
        return CqlType(random.choice(_SCALARS))
    args = [some_type(random, depth - 1) for _ in range(random.randint(1, 3))]
    match kind:
        case "map":
            return CqlType("map", (args[0], args[-1]), frozen=True)
        case "udt":
            name = f"u{crc32(repr(args).encode()):08x}"
            return CqlType("udt", tuple(args), frozen=True, name=name, fields=("a", "B c", "d")[: len(args)])
        case "vector":
            return CqlType("vector", (args[0],), dimension=random.randint(1, 3))
        case "tuple":
            return CqlType("tuple", tuple(args), frozen=True)
    return CqlType(kind, (args[0],), frozen=True)


def some_bytes(random: Random, of: CqlType) -> bytes:
    """The bytes of a value of the type, as Cassandra lays them out; some are empty, some are at the ends."""
    args = of.args
    if not args:
        sizes = (1, 3, 20) if of.fixed_size is None else (of.fixed_size,)
        made = [*EXTREMES.get(of.kind, ()), random.randbytes(_SIZES.get(of.kind) or random.choice(sizes))]
        return random.choice([data for data in made if len(data) < _LARGE])
    if of.kind == "vector":
        elements = [some_bytes(random, args[0]) for _ in range(of.dimension)]
        return b"".join(elements if args[0].fixed_size else [write_unsigned(len(data)) + data for data in elements])
    if of.kind in ("tuple", "udt"):
        fields = [None if random.random() < 0.2 else some_bytes(random, arg) for arg in args]
        return b"".join(map(_element, fields[: random.randint(1, len(fields))]))
    count = random.randrange(4)
    return count.to_bytes(4, "big") + b"".join(_element(some_bytes(random, arg)) for _ in range(count) for arg in args)


def _element(data: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if data is None else len(data).to_bytes(4, "big") + data


@cache
def values() -> Sequence[tuple[CqlType, bytes]]:
    """Types, each with bytes of a value of it: of every kind, nested, with the ends of what it takes."""
    random = Random(5)
    known = [(parse_type(text, USER_TYPES), bytes.fromhex(data)) for text, data, _ in (*WHOLE, *OPEN)]
    ends = [(parse_type(kind), data) for kind, some in EXTREMES.items() for data in some if len(data) < _LARGE]
    types = [*TYPES, *(some_type(random, 2) for _ in range(examples(150)))]
    return [*known, *ends, *((of, some_bytes(random, of)) for of in types for _ in range(2))]


@cache
def corpora() -> Mapping[str, Corpus]:
    """The kept recordings of every version."""
    with tempfile.TemporaryDirectory() as folder:
        return {name: kept(name, Path(folder, name)) for name in VERSIONS}


@cache
def logged_changes() -> Sequence[Change]:
    """Changes of real tables of every version, with everything that Cassandra logs."""
    random = Random(7)
    some = [random.sample(changes_in(corpus), examples(60)) for corpus in corpora().values()]
    return [*(change for changes in some for change in changes), *recorded_changes(KINDS[-1])]


@cache
def hostile_changes() -> Sequence[Change]:
    """Changes with names, values and times that stores have trouble with, and of few times, so that ties are common."""
    random = Random(9)
    named = [change for of in (*NAMES.values(), *FIELDS.values()) for change in row(of)]
    tied = [some_change(random, of) for of in (PLAIN, OF_ANY_BYTES) for _ in range(examples(80))]
    timed = [
        replace(change, marker=Marker(at, ttl, at), cells=tuple(replace(cell, written=at) for cell in change.cells))
        for change in named[:2]
        for at in WORDS
        for ttl in (None, 1, 2**31 - 1)
    ]
    places = (None, Position(1, 2, 3), Position(1, 2**63 - 1, 2**31 - 1), Position(1, -(2**63), -1))
    truncated = [
        truncate(of, HOSTS[index % 2], at, place)
        for of in (PLAIN, OF_ANY_BYTES)
        for index, at in enumerate(WORDS)
        for place in places
    ]
    changes = [*named, *extremes(), *tied, *timed, *truncated]
    return [with_source(replace(change, digest=random.randbytes(16))) for change in changes]


def some_change(random: Random, of: Table) -> Change:
    """A change of a partition of few rows: of a row or the static one, of a range, of all of it."""
    clusterings: Sequence[tuple[bytes, ...]] = [(number.to_bytes(4, "big"),) for number in range(3)]
    deletion = Deletion(random.randrange(5), random.choice((10, 11)))
    kind = random.randrange(10)
    if kind == 0:
        return Change(op=Op.DELETE_PARTITION, table=of, token=0, key=bytes(4), deletion=deletion)
    if kind == 1:
        start, end = (Bound(random.choice([(), *clusterings]), random.random() < 0.5) for _ in range(2))
        return Change(op=Op.DELETE_RANGE, table=of, token=0, key=bytes(4), deletion=deletion, start=start, end=end)
    static = kind == 2
    columns = of.static if static else of.regular
    marked, deleted = not static and random.random() < 0.5, not static and random.random() < 0.2
    cells = tuple(_some_cell(random, random.choice(columns)) for _ in range(random.randrange(1 - marked, 5)))
    multicell = [column for column in columns if column.type.multicell]
    return Change(
        op=Op.DELETE if deleted else Op.INSERT if marked else Op.UPDATE,
        table=of,
        token=0,
        key=bytes(4),
        clustering=None if static else random.choice(clusterings),
        static=static,
        marker=Marker(random.randrange(5), *random.choice(((), (1, 10), (2, 11)))) if marked else None,
        deletion=deletion if deleted else None,
        cells=cells,
        column_deletions=tuple(ColumnDeletion(column, deletion) for column in multicell if random.random() < 0.2),
    )


def _some_cell(random: Random, column: Column) -> Cell:
    path = bytes(15) + random.choice((b"\x01", b"\x02")) if column.type.multicell else None
    value = random.choice((b"\x00\x00\x00\x01", b"\xff\xff\xff\xff", b""))
    ttl, expires, data = random.choice(((None, None, value), (1, 10, value), (2, 11, value), (None, 10, None)))
    return Cell(column, path, random.randrange(5), ttl, expires, data)
