"""Groups the changes of a batch by their table's id: each table is merged by itself."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from tailrace_spark.batch.delivery import Delivered


def group_by_table(
    changes: Iterable[Delivered], tables: dict[UUID, list[Delivered]] | None = None
) -> dict[UUID, list[Delivered]]:
    """The changes of each table id, in their order; several definitions of one table are together.

    With `tables`, a former result, they are added to it.
    """
    groups = {} if tables is None else tables
    table, group = None, list[Delivered]()
    for delivered in changes:
        if delivered.change.table is not table:  # hashing an id takes longer than this comparison
            table = delivered.change.table
            group = groups.setdefault(table.id, [])
        group.append(delivered)
    return groups
