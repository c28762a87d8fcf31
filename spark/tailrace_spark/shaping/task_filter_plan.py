"""Filters as tasks get them, and the verdicts of records: plain data that can be pickled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

CASE: Final = "filter_case"
"""The column with the number of the condition to ask of a record, from 1 on; else its Verdict."""
VERDICT: Final = "verdict"


class Verdict(IntEnum):
    """What becomes of a record."""

    PASSES = 0
    LEFT_OUT = -1
    NO_VALUE = -2
    """A dead letter: one of its values is none that Spark can have."""
    REFUSED = -3
    """A dead letter: its table does not fit the condition."""
    FOR_DRIVER = -4
    """Spark cannot evaluate the condition, and the driver finds out why; or the table is not in the plan."""


@dataclass(frozen=True, slots=True)
class TableFilter:
    """The filter of one table: `setting` names it, `table` is its newest definition as JSON.

    The condition asks for the columns `names`, which are those of the plan's `values[number]`. `cases` has a number of
    a condition for each count of `known_key_columns`; 0 where all changes pass.
    """

    setting: str
    table: str
    names: tuple[str, ...]
    number: int
    cases: tuple[int, ...]

    @property
    def no_value(self) -> str:
        """Why a change is a dead letter that has a value which Spark cannot have."""
        return cannot_be_evaluated(self.setting, "a value is none that Spark can have")


@dataclass(frozen=True, slots=True)
class FilterPlan:
    """The filters of a stream, by the id of the writer's schema; in place of one why the table does not fit.

    `elsewhere` are the ids of tables with a condition whose topics the stream does not read. `values` are the pyarrow
    Schemas of columns that conditions ask for; tables whose columns are called and typed alike share one. With
    `written` conditions may ask for what a change writes.
    """

    tables: Mapping[bytes, TableFilter | str]
    elsewhere: frozenset[bytes]
    values: tuple[Any, ...]
    written: bool


def values_column(number: int) -> str:
    """The name of the column with the values of a Schema of the plan."""
    return f"filter_values_{number}"


def cannot_be_evaluated(setting: str, reason: object) -> str:
    """A dead letter's reason."""
    return f"{setting} cannot be evaluated of it: {reason}"
