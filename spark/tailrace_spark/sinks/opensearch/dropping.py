"""Takes away the indexes of source tables. What another sink or table has under a like name stays."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace_schemas.errors import SettingsError
from tailrace_schemas.table import Table
from tailrace_spark.sinks.opensearch.index import Indexes


def drop_indexes(indexes: Indexes, tables: Sequence[Table]) -> list[str]:
    """Delete the indexes of these tables, dead letters not; the names that readers searched, in order.

    Raises SettingsError where another table's index stands behind one of these. For a table is looked for under NAME,
    NAME-2 and so on, until there is none. Raises ServiceError; a second call then goes on from there.
    """
    ids = {str(table.id) for table in tables}
    dropped: list[str] = []
    for table in tables:
        standing = list(indexes.standing(table))
        indexes_of_tables = [index for index in standing if index.table_id in ids]
        if not indexes_of_tables:
            continue
        first = indexes_of_tables[0]
        for index in standing[standing.index(first) :]:
            if index.table_id not in ids:
                raise SettingsError(
                    f"index {index.alias} belongs to another table, and would not be found without {first.alias}: "
                    "cancel without dropping, and delete both indexes yourself once both may go"
                )
        for index in reversed(indexes_of_tables):  # the last one first: one that is left is found again
            indexes.delete(index)
            dropped.append(index.alias)
    return sorted(dropped)
