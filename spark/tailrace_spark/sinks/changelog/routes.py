"""Names that are filled in for each change: with its table, and with values of its partition key."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from string import Formatter
from typing import Final
from urllib.parse import quote

from tailrace_common.sections.template import KEY_COLUMN, fit
from tailrace_schemas.avro.convert import to_avro
from tailrace_schemas.change import Change
from tailrace_schemas.change_json import compact_json
from tailrace_schemas.cql.json_value import plain
from tailrace_schemas.cql.values import split_key
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.table import Table
from tailrace_spark.sinks.table_faults import TableRefusedError

WHOLE: Final = "*"
"""Stands for the values of a key where a change is of all keys: a truncation. No value is written so."""

Escape = Callable[[str], str]
"""Makes a part of a name of any text: other texts give other parts, and none has what separates parts."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_MICROS: Final = 86_400_000_000


class RouteError(ValueError):
    """A change has values of which no name can be made; the words have none of them."""


class Route:
    """A template that `require_route` has checked, filled in for changes. Owned by one thread.

    The values of its `given` names go in as they are; keyspace, table and key values are escaped first. A name that has
    no values of keys in it has at most `longest` bytes.
    """

    def __init__(
        self, template: str, escape: Escape, values: Mapping[str, str] | None = None, *, longest: int | None = None
    ) -> None:
        self._pieces = [(literal, name) for literal, name, _, _ in Formatter().parse(template)]
        self._escape = escape
        self._fixed_values = dict(values or {})
        self._longest = longest
        self._columns = [name for _, name in self._pieces if name is not None and name.startswith(KEY_COLUMN)]
        self._of_table: dict[int, tuple[Table, str | None, dict[str, int]]] = {}
        self.by_key = bool(self._columns)
        """Whether values of keys are in it."""
        self.varies = any(name is not None for _, name in self._pieces)
        """Whether it is another name for some changes."""

    def of(self, change: Change) -> str:
        """The name for a change. Raises TableRefusedError where the key lacks a column of the template."""
        table = change.table
        plan = self._of_table.get(id(table))  # tables are compared by identity: to hash one takes longer
        if plan is None:
            plan = self._of_table[id(table)] = self._planned(table)  # which keeps the table, and so its id
        _, name, indexes = plan
        return self._filled(table, self._values(change, indexes)) if name is None else name

    def of_table(self, table: Table) -> str:
        """The name for all changes of a table, where no values of keys are in it."""
        name = self._filled(table, {})
        return name if self._longest is None else fit(name, self._longest)

    def of_anything(self) -> str:
        """A name that no change has, where any is in it; else that of all."""
        return self._join(lambda name: self._fixed_values.get(name, WHOLE))

    def pattern(self, table: Table, value: str) -> re.Pattern[str]:
        """Matches all names for changes of a table; `value` is a regular expression of an escaped value."""
        names = self._names(table)
        parts = [re.escape(literal) + self._expression(name, names, value) for literal, name in self._pieces]
        return re.compile("".join(parts))

    def _expression(self, name: str | None, names: Mapping[str, str], value: str) -> str:
        if name is None:
            return ""
        return value if name.startswith(KEY_COLUMN) else re.escape(names[name])

    def _planned(self, table: Table) -> tuple[Table, str | None, dict[str, int]]:
        try:
            require_key_columns(table, "the route", [name.removeprefix(KEY_COLUMN) for name in self._columns])
        except SettingsError as error:
            raise TableRefusedError(str(error)) from None
        if not self._columns:
            return table, self.of_table(table), {}
        indexes = {KEY_COLUMN + column.name: index for index, column in enumerate(table.partition_key)}
        return table, None, {name: indexes[name] for name in self._columns}

    def _values(self, change: Change, indexes: Mapping[str, int]) -> dict[str, str]:
        if change.key is None:
            return dict.fromkeys(indexes, WHOLE)
        columns = change.table.partition_key
        parts = split_key([column.type for column in columns], change.key)
        return {
            name: self._escape(_text(to_avro(columns[index].type, parts[index])[0])) for name, index in indexes.items()
        }

    def _names(self, table: Table) -> dict[str, str]:
        return {**self._fixed_values, "keyspace": self._escape(table.keyspace), "table": self._escape(table.name)}

    def _filled(self, table: Table, values: Mapping[str, str]) -> str:
        names = {**self._names(table), **values}
        return self._join(lambda name: names[name])

    def _join(self, text_of: Callable[[str], str]) -> str:
        return "".join(literal + ("" if name is None else text_of(name)) for literal, name in self._pieces)


def require_key_columns(table: Table, setting: str, columns: Iterable[str]) -> None:
    """Raise SettingsError for a column of a template that is not in the partition key of a table."""
    names = [column.name for column in table.partition_key]
    for column in columns:
        if column not in names:
            raise SettingsError(
                f"{table}: {setting} names {{{KEY_COLUMN}{column}}}, which is not in its partition key. It may name "
                f"{', '.join(f'{{{KEY_COLUMN}{name}}}' for name in names)}: these are the same in all changes of a key"
            )


def url_text(text: str) -> str:
    """A text as one step of a path, or one value of a query: all but letters, digits and -._~ as %XX (RFC 3986)."""
    return quote(text, safe="")


def word(text: str) -> str:
    """A text as one word of a routing key of AMQP: as `url_text`, and without the dot that separates words."""
    return url_text(text).replace(".", "%2E")


def _text(value: object) -> str:
    """Text as it is, other values as their JSON."""
    value = plain(value)
    return value if isinstance(value, str) else compact_json(value)


def day_of(written: int) -> str:
    """The day (UTC) of a write time in microseconds; of one beyond the years 1 to 9999, the first or last of these."""
    return _day(written // _DAY_MICROS)


@lru_cache(maxsize=1_000)
def _day(number: int) -> str:
    """The day of so many days since 1970: most changes of a batch are of one or two."""
    try:
        return (_EPOCH + timedelta(days=number)).date().isoformat()
    except OverflowError:
        return (date.max if number > 0 else date.min).isoformat()
