"""Which of several tables that had one name is the later one: by the DDL in all hosts' logs, never by their ids.

A table is later than another one if the last statement on it is later. Statements have the order in which Cassandra
takes them: by epoch of the cluster's metadata (6.0), before that by write time, by which nodes merge `system_schema`.
It is the order of their positions in each node's log, and unlike a position it means the same on every host. So an
agent that lags tells of statements that are early, whenever it does. Without statements, as of tables that are older
than the agents, the one that was announced first is the earlier one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cmp_to_key
from uuid import UUID

from tailrace_schemas.packing import json_object

Statement = tuple[bool, int]
"""Whether it has a metadata epoch; that, else its write time in microseconds."""

_DDL = frozenset({"created", "altered", "dropped"})


def statement_of(value: bytes | None) -> tuple[UUID, Statement] | None:
    """The table id and the statement of a record of `.schema-changes`; None for one that is about no table."""
    try:
        record = json_object(value or b"")
        if record["subject"] != "table" or record["kind"] not in _DDL:
            return None
        epoch = record["metadata"]
        return UUID(record["id"]), (False, int(record["written"])) if epoch is None else (True, int(epoch))
    except (ValueError, LookupError, TypeError, AttributeError):
        return None  # anybody who may write to the topic can put anything there


def in_order(announced: Mapping[UUID, int], last: Mapping[UUID, Statement]) -> list[UUID]:
    """The ids of one name's tables, the earliest first; `announced`: where each was at first, `last`: its statement."""

    def compare(first: UUID, second: UUID) -> int:
        before, after = last.get(first), last.get(second)
        if before is not None and after is not None and before[0] == after[0] and before != after:
            return -1 if before < after else 1
        return announced[first] - announced[second]

    return sorted(announced, key=cmp_to_key(compare))


def places(
    announced: Iterable[tuple[UUID, int]], last: Mapping[UUID, Statement]
) -> Mapping[UUID, tuple[int, int | None]]:
    """From where on, and below which place, each table of one name counts as announced.

    So all announcements of a later table are behind all of an earlier one, also those that agents make which lag.
    `announced`: of each schema its table id, and the offset at which it was announced first.
    """
    firsts: dict[UUID, list[int]] = {}
    for table_id, offset in announced:
        firsts.setdefault(table_id, []).append(offset)
    order = in_order({table_id: min(offsets) for table_id, offsets in firsts.items()}, last)
    begins: list[int] = []
    for earlier, table_id in zip([None, *order], order, strict=False):
        begin = min(firsts[table_id])
        if earlier is not None and begin <= begins[-1]:
            # It was announced before it became the later one: then all that the earlier one had is before that.
            begin = max(begins[-1], *firsts[earlier]) + 1
        begins.append(begin)
    return dict(zip(order, zip(begins, [*begins[1:], None], strict=True), strict=True))
