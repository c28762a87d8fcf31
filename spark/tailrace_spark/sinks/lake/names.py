"""Names of columns and fields in a lake: told apart though Delta and most readers fold case, and kept for ever.

CQL tells `Val` from `val`. Whichever a table gets first has its own name, as Avro writes it (avro.names). In the name
of another, upper-case letters are written as Avro writes other characters in names: `_x`, the code point and `_`.
Where there are none, all letters are. So `avro.names.cql_name` gives the source's name of either. What a table has
tells which is whose: no later column changes that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from tailrace_common.sections.template import fit
from tailrace_schemas.avro.names import BOUND_FIELDS, cql_name

Names = Mapping[str, Any]
"""The fields of a struct by name, and likewise those of what is in them, also in lists; of all else nothing."""

_UPPER: Final = re.compile(r"^[0-9]|_(?=x)|[^a-z0-9_]")
_ALL: Final = re.compile(r"^[0-9]|_(?=x)|[^0-9_]")
_LONGEST: Final = 255  # bytes, of a column that readers see


def spelled(name: str) -> str:
    """The name, as Avro has it, of a column or field of which another has that but for case."""
    source = cql_name(name)
    letters = _UPPER if re.search("[A-Z]", source) else _ALL
    return letters.sub(lambda match: f"_x{ord(match[0]):x}_", source)


def names_of(schema: Any) -> Names:
    """The names in a pyarrow Schema, or a struct."""
    return {field.name: _inner_names(field.type) for field in schema}


def distinct(schema: Any, existing: Names, fixed: Sequence[str] = (), longest: int | None = None) -> Any:
    """A pyarrow Schema whose names differ at every level without case; `existing` are those that its table has.

    `fixed` are the names of the last columns, which stay. With `longest` columns have no more bytes of UTF-8.
    """
    return pa.schema(_distinct(list(schema), existing, len(fixed), longest))


def shown(schema: Any, existing: Names, fixed: Sequence[str]) -> Any:
    """As `distinct`, of a table that people read."""
    return distinct(schema, existing, fixed, _LONGEST)


def _distinct(fields: Sequence[Any], existing: Names, fixed: int, longest: int | None = None) -> list[Any]:
    own_names = {field.name for field in fields[len(fields) - fixed :]}
    used_names = {name.lower() for name in (*existing, *own_names)}
    named: dict[int, str] = {}
    spellings = [(field.name, spelled(field.name)) for field in fields]
    if longest is not None:
        spellings = [(fit(first, longest), fit(second, longest)) for first, second in spellings]
    for index, (name, escaped) in enumerate(spellings):
        if index >= len(fields) - fixed:
            named[index] = name
        elif escaped in existing and escaped != name:
            named[index] = escaped
        elif name in existing and name not in own_names:
            named[index] = name
    for index, (name, escaped) in enumerate(spellings):
        if index not in named:
            named[index] = escaped if name.lower() in used_names else name
            used_names.add(named[index].lower())
    return [
        pa.field(named[index], _distinct_type(field.type, existing.get(named[index], {})))
        for index, field in enumerate(fields)
    ]


def _distinct_type(of: Any, existing: Names) -> Any:
    if pa.types.is_list(of):
        return pa.list_(_distinct_type(of.value_type, existing))
    if not pa.types.is_struct(of):
        return of
    fields = list(of)
    bound = tuple(field.name for field in fields[-len(BOUND_FIELDS) :]) == BOUND_FIELDS
    return pa.struct(_distinct(fields, existing, len(BOUND_FIELDS) if bound else 0))


def _inner_names(of: Any) -> Names:
    if pa.types.is_list(of):
        return _inner_names(of.value_type)
    return names_of(of) if pa.types.is_struct(of) else {}
