"""Filters: of the changes of a table those that a condition holds of, and those that it cannot be asked of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from uuid import UUID

import pyarrow as pa
from pyspark.sql import SparkSession

from tailrace_schemas.change import Change
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece
from tailrace_spark.shaping.filter_columns import FilterColumns, known_key_columns
from tailrace_spark.shaping.spark_condition import CheckedCondition, Condition, ValuesError
from tailrace_spark.shaping.task_filter_plan import cannot_be_evaluated

SETTING = "stream.where"


@dataclass(frozen=True, slots=True)
class CheckedFilter:
    """The filter of one definition of a table, whose columns are those that the condition asks for."""

    columns: FilterColumns
    condition: CheckedCondition
    name: str


class Filters:
    """Leaves changes out by conditions, by pattern of keyspace and table; the first pattern that matches counts.

    With `written` they may ask for the columns that a change writes. `left_out` counts, by "keyspace.table", what was
    left out of the batch that is being taken. Raises SettingsError for a text that is no expression of Spark SQL.
    """

    def __init__(self, spark: SparkSession, conditions: Mapping[str, str], *, written: bool) -> None:
        self._conditions = {
            pattern: Condition(spark, f'{SETTING} "{pattern}"', text) for pattern, text in conditions.items()
        }
        self.spark = spark
        self.written = written
        self._newest: dict[UUID, tuple[int, Table]] = {}
        self._filters: dict[int, tuple[Table, CheckedFilter | SettingsError]] = {}
        self.left_out: Counter[str] = Counter()

    def concerns(self, table: Table) -> bool:
        """Whether a table has a condition."""
        return self._condition(table) is not None

    def unmatched(self, tables: Iterable[Table]) -> list[str]:
        """The patterns that match none of these tables."""
        names = [str(table) for table in tables]
        return [pattern for pattern in self._conditions if not any(fnmatchcase(name, pattern) for name in names)]

    def check(self, table: Table, announced: int = -1) -> None:
        """Raise SettingsError where the table has a condition that cannot be asked of its changes.

        Of definitions of a table the one with the larger `announced` says the names, here and of later changes.
        """
        if self.concerns(table):
            self.checked(self.newest(table, announced))

    def filtered(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """The pieces without what is left out. Changes of a table that does not fit are dead letters."""
        self.left_out.clear()
        for piece in pieces:
            yield self._piece(piece)

    def _piece(self, piece: Piece) -> Piece:
        groups: dict[tuple[int, int], list[int]] = {}
        verdicts: list[bool | str] = [True] * len(piece.changes)
        tables: dict[int, Table] = {}
        for index, delivered in enumerate(piece.changes):
            if self.concerns(delivered.change.table):
                table = self.newest(delivered.change.table, delivered.announced)
                tables[id(table)] = table
                groups.setdefault((id(table), known_key_columns(delivered.change)), []).append(index)
        for (table_id, known_columns), indexes in groups.items():
            changes = [piece.changes[index].change for index in indexes]
            for index, verdict in zip(indexes, self._judged(tables[table_id], known_columns, changes), strict=True):
                verdicts[index] = verdict
        return self._sorted(piece, verdicts) if groups else piece

    def _sorted(self, piece: Piece, verdicts: Sequence[bool | str]) -> Piece:
        passed: list[Delivered] = []
        letters = list(piece.dead_letters)
        for delivered, verdict in zip(piece.changes, verdicts, strict=True):
            if isinstance(verdict, str):
                letters.append(DeadLetter(delivered.record_id, verdict, delivered.message))
            elif verdict:
                passed.append(delivered)
            else:
                self.left_out[str(delivered.change.table)] += 1
        return Piece(tuple(passed), tuple(letters))

    def _judged(self, table: Table, known_columns: int, changes: Sequence[Change]) -> Iterable[bool | str]:
        try:
            filtering = self.checked(table)
        except SettingsError as error:
            return [str(error)] * len(changes)
        return self._evaluated(filtering, known_columns, changes)

    def _evaluated(self, filtering: CheckedFilter, known_columns: int, changes: Sequence[Change]) -> list[bool | str]:
        """Whether each change passes, or why that cannot be evaluated. By halves, to find those that Spark refuses."""
        names = filtering.columns.named(known_columns)
        if not filtering.condition.parts(names):
            return [True] * len(changes)
        try:
            results = filtering.condition.holds(filtering.columns.rows(changes), names)
        except (ValuesError, pa.ArrowInvalid, ValueError) as error:
            if len(changes) == 1:
                why = error if isinstance(error, ValuesError) else "a value is none that Spark can have"
                return [cannot_be_evaluated(filtering.name, why)]
            half = len(changes) // 2
            return [
                *self._evaluated(filtering, known_columns, changes[:half]),
                *self._evaluated(filtering, known_columns, changes[half:]),
            ]
        return [result is True for result in results]

    def _condition(self, table: Table) -> Condition | None:
        name = str(table)
        return next((condition for pattern, condition in self._conditions.items() if fnmatchcase(name, pattern)), None)

    def newest(self, table: Table, announced: int) -> Table:
        """The newest definition of a table that was met: a key column that was renamed has its name."""
        newest = self._newest.get(table.id)
        if newest is None or newest[0] < announced:
            newest = self._newest[table.id] = announced, table
        return newest[1]

    def checked(self, table: Table) -> CheckedFilter:
        """The filter of a definition that a condition concerns. Raises SettingsError where it does not fit.

        Tables are compared by identity: to compare all of them them takes longer than to look at a change.
        """
        if id(table) not in self._filters:
            self._filters[id(table)] = table, self._new_filter(table)  # which keeps the table, and so its id
        table_filter = self._filters[id(table)][1]
        if isinstance(table_filter, SettingsError):
            raise table_filter
        return table_filter

    def _new_filter(self, table: Table) -> CheckedFilter | SettingsError:
        condition = self._condition(table)
        if condition is None:
            raise ValueError(f"no condition is about {table}")
        columns = FilterColumns(table, written=self.written)
        try:
            checked = condition.checked(columns.schema, self._may_ask(columns))
        except SettingsError as error:
            return SettingsError(f"{table}: {error}")
        names = checked.columns or {columns.schema.names[0]}  # rows are counted by a column
        return CheckedFilter(FilterColumns(table, written=self.written, names=names), checked, condition.setting)

    def _may_ask(self, columns: FilterColumns) -> str:
        names = f"it may ask for {', '.join(columns.schema.names)}"
        if self.written:
            return names
        return f"{names}: of other columns a change has only what it writes, so no table could follow them"
