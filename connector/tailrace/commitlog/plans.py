"""What decoding needs of a table, worked out once: columns by name, value sizes, and one plan per header.

The header of a partition update lists column names. Most updates of a table repeat a few such lists, so the columns
behind a list are resolved once and kept under the list's bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from librt.vecs import vec
from mypy_extensions import i64

from tailrace.errors import UnknownColumnError
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.vint import read_unsigned
from tailrace_schemas.errors import CorruptError
from tailrace_schemas.table import Column, Table, columns_by_name

VARIABLE: Final = -1
"""Size of a value that carries its length."""
COMPLEX: Final = -2
"""Instead of a size: the column is multi-cell."""

# Both caches are emptied when full: a workload with that many shapes gains nothing from keeping them.
_MOST_PLANS: Final = 256
_MOST_TABLE_PLANS: Final = 4096
_WORD: Final = (1 << 64) - 1
# Column counts from which on a row lists indexes instead of a bitmap (Columns.Serializer).
_BITMAP_COLUMNS: Final = 64


class HeaderPlan:
    """The columns of one header list in wire order; `sizes[i]` is bytes per value, or VARIABLE, or COMPLEX.

    `everything` are all indexes. Of a wide header a row lists indexes; of any other it has a bitmap, see `subset`.
    """

    __slots__ = ("_subsets", "columns", "everything", "is_wide", "sizes")

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self.columns = columns
        self.sizes = vec[i64]([COMPLEX if column.type.multicell else value_size(column.type) for column in columns])
        self.everything = vec[i64](range(len(columns)))
        self.is_wide = len(columns) >= _BITMAP_COLUMNS
        self._subsets: dict[int, _Indexes] = {}

    def subset(self, coded: i64) -> vec[i64]:
        """The indexes of the columns that a row has, by its bitmap, in which a set bit marks a missing column.

        Raises CorruptError for bits beyond the columns.
        """
        indexes = self._subsets.get(coded)
        if indexes is None:
            if coded < 0 or coded >> len(self.columns):
                bits: int = coded  # no longer a word: the mask has more bits than one
                raise CorruptError(f"column subset {bits & _WORD:#x} of only {len(self.columns)} columns")
            if len(self._subsets) >= _MOST_PLANS:
                self._subsets.clear()
            indexes = _Indexes(vec[i64]([index for index in range(len(self.columns)) if not coded >> index & 1]))
            self._subsets[coded] = indexes
        return indexes.present


class _Indexes:
    """The indexes of one bitmap; a dictionary takes objects only."""

    __slots__ = ("present",)

    def __init__(self, present: vec[i64]) -> None:
        self.present = present


class TablePlan:
    """One table definition, ready for decoding: `clustering` are the sizes of its clustering values."""

    __slots__ = ("_by_name", "_plans", "clustering", "table")

    def __init__(self, table: Table) -> None:
        self.table = table
        self.clustering = vec[i64]([value_size(column.type) for column in table.clustering])
        # Dropped columns too: a write may be older than the DROP that the definition knows, and its bytes have to be
        # read by the dropped type (system_schema.dropped_columns).
        self._by_name: Mapping[bytes, Column] = columns_by_name(table)
        self._plans: dict[bytes, HeaderPlan] = {}

    def plan(self, listed: bytes) -> HeaderPlan:
        """The plan for a header's list of column names, as it stands in the log.

        Raises UnknownColumnError for a name that the definition has neither as a column nor as a dropped one,
        CorruptError for one that stands there twice.
        """
        plan = self._plans.get(listed)
        if plan is None:
            plan = HeaderPlan(self._resolve(listed))
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[listed] = plan
        return plan

    def _resolve(self, listed: bytes) -> tuple[Column, ...]:
        columns: list[Column] = []
        count, offset = read_unsigned(listed, 0)
        for _ in range(count):
            length, offset = read_unsigned(listed, offset)
            name = listed[offset : offset + length]
            column = self._by_name.get(name)
            if column is None:
                raise UnknownColumnError(self.table.id, str(self.table), name)
            columns.append(column)
            offset += length
        # Columns.Serializer writes each column of the update once, so a repeated name is damage.
        if len(set(columns)) < len(columns):
            raise CorruptError(f"a header of {len(columns)} columns names one of them twice")
        return tuple(columns)


_table_plans: dict[UUID, TablePlan] = {}


def table_plan_of(table: Table) -> TablePlan:
    """The plan of this very definition; kept until another definition of its id is asked for."""
    table_plan = _table_plans.get(table.id)
    if table_plan is None or table_plan.table is not table:
        if len(_table_plans) >= _MOST_TABLE_PLANS:
            _table_plans.clear()
        table_plan = _table_plans[table.id] = TablePlan(table)
    return table_plan


def value_size(cql_type: CqlType) -> int:
    """Bytes of every value outside of collections, VARIABLE where values carry their length."""
    size = cql_type.fixed_size
    return VARIABLE if size is None else size
