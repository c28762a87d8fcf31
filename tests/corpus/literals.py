"""Random CQL literals of any type."""

from __future__ import annotations

from random import Random
from typing import Final

from tailrace.demo.script import LITERALS
from tailrace_schemas.cql.types import CqlType
from tests.corpus.release import Dialect

# Types of which no bytes are a value (AbstractType.validate), but text and blob, which have such literals anyway.
_MAY_BE_EMPTY: Final = frozenset(
    {"bigint", "boolean", "decimal", "double", "float", "inet", "int", "timestamp", "uuid", "varint"}
)


def literal(random: Random, cql_type: CqlType) -> str:
    """A value of the type, never null."""
    kind, args = cql_type.kind, cql_type.args

    def items(most: int) -> list[str]:
        return [literal(random, args[0]) for _ in range(random.randrange(most + 1))]

    if kind == "list":
        return f"[{', '.join(items(4 if random.random() < 0.98 else 200))}]"
    if kind == "set":
        return f"{{{', '.join(items(4))}}}"
    if kind == "map":
        pairs = {literal(random, args[0]): literal(random, args[1]) for _ in items(3)}
        return f"{{{', '.join(f'{key}: {value}' for key, value in pairs.items())}}}"
    if kind == "vector":
        return f"[{', '.join(literal(random, args[0]) for _ in range(cql_type.dimension))}]"
    if kind == "tuple":
        return f"({', '.join(_or_null(random, arg) for arg in args)})"
    if kind == "udt":
        chosen = [pair for pair in zip(cql_type.fields, args, strict=True) if random.random() < 0.8]
        chosen = chosen or [(cql_type.fields[0], args[0])]
        return f"{{{', '.join(f'{name}: {_or_null(random, arg)}' for name, arg in chosen)}}}"
    if kind == "text" and random.random() < 0.005:
        return f"'{'long ' * random.randrange(10_000)}'"
    return LITERALS[kind](random)


def empty(cql_type: CqlType, dialect: Dialect) -> str | None:
    """A value of no bytes; None where the type has none."""
    return dialect.from_blob(cql_type.kind, "0x") if cql_type.kind in _MAY_BE_EMPTY else None


def _or_null(random: Random, cql_type: CqlType) -> str:
    return "null" if random.random() < 0.15 else literal(random, cql_type)
