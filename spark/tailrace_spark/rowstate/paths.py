"""Under which bytes an element of a collection is kept, so that those which Cassandra holds for one are one."""

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
    """What makes a path of this multi-cell type the key that it is kept under; None where a path is its own key.

    A set's elements and a map's keys are compared by their type (CollectionType.cellPathComparator): 1.0 and 1.00 in
    a set of decimals are one element, and so are a user type's value and the same with nulls at its end. The key
    raises DecodeError for a path that is no value of the type.
    """
    if cql_type.kind not in ("map", "set") or cql_type.args[0].kind in _BY_BYTES:
        return None
    element = cql_type.args[0]
    return lambda path: sortable(element, path, False)
