"""Names of columns in each database: the source's own, unless the database cannot have them (docs/sinks/sql.md)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from unicodedata import combining, normalize

from tailrace_spark.sinks.naming import CLUSTERING, KEY, claim
from tailrace_spark.sinks.state_store.dialects import MYSQL, POSTGRESQL

# Columns that each table has by itself. PostgreSQL: "System Columns"; InnoDB: its hidden columns.
_OF_THE_SYSTEM: Final[Mapping[str, frozenset[str]]] = {
    POSTGRESQL: frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"}),
    MYSQL: frozenset({"db_row_id", "db_trx_id", "db_roll_ptr", "fts_doc_id"}),
}
_IN_NO_NAME: Final = re.compile("\0")
# MySQL: "Schema Object Names". It has no characters beyond U+FFFF in names, and no blanks at their ends.
_IN_NO_NAME_OF_MYSQL: Final = re.compile("[\0\U00010000-\U0010ffff]|\\s(?=\\s*\\Z)")


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """The rule of one database: its dialect, and the most bytes of UTF-8 that a name has there."""

    dialect: str
    limit: int

    def claim(self, name: str, used: Collection[str]) -> str:
        """The name of a source column, the first of NAME, NAME_2, ... that is free; `used` is of `used`.

        A character that the database has in no name is an underscore, and so is an empty name.
        """
        refused = _IN_NO_NAME_OF_MYSQL if self.dialect == MYSQL else _IN_NO_NAME
        return claim(refused.sub("_", name) or "_", self.limit, used, lambda free: frozenset({self._folded(free)}))

    def taken(self, names: Iterable[str]) -> set[str]:
        """What no further column may be called: these names, the sink's own and the database's, as it compares them."""
        return {KEY, CLUSTERING, *_OF_THE_SYSTEM.get(self.dialect, ()), *map(self._folded, names)}

    def _folded(self, name: str) -> str:
        """Equal for names that the database may take for one: MySQL compares by letters without case and accents."""
        if self.dialect != MYSQL:
            return name.lower()
        letters = [letter for letter in normalize("NFD", name) if not combining(letter)]
        return "".join(letter.upper()[0] for letter in letters).lower()  # to MySQL, "ß" is one "s"
