"""The key under which a collection's element is kept: one key for all bytes that Cassandra compares as equal."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from tailrace_schemas.cql.order import sortable
from tailrace_schemas.cql.types import CqlType

PathKey = Callable[[bytes], bytes]

# Of these, values are equal to Cassandra exactly where their bytes are (their classes' compareCustom; BYTE_ORDER).
_BY_BYTES: Final = frozenset(
    {
        "ascii", "bigint", "blob", "date", "inet", "int", "smallint", "text", "time", "timestamp", "timeuuid",
        "tinyint", "uuid",
    }
)  # fmt: skip


@lru_cache(maxsize=4096)
def path_key(cql_type: CqlType) -> PathKey | None:
    """A function from a path of this multi-cell type to its key; None where a path is its own key.

    The function raises DecodeError for a path that is no value of the type.
    """
    # A set's elements and a map's keys are compared by their type (CollectionType.cellPathComparator). So 1.0 and 1.00
    # in a set of decimals are one element, and so are a user type's value and the same with nulls at its end.
    # A list's time UUIDs and a user type's field numbers are equal only where their bytes are.
    if cql_type.kind not in ("map", "set") or cql_type.args[0].kind in _BY_BYTES:
        return None
    element = cql_type.args[0]
    return lambda path: sortable(element, path, False)
