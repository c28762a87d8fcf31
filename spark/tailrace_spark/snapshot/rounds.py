"""What of a table is read next: a round of ranges that tasks read at once, each of one node's. No I/O.

Estimates of nodes may be wrong, or of what is flushed alone. So ranges begin as small shares of the ring, and grow
while they come out small; they are halved where they come out large.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from tailrace_spark.snapshot.ranges import Estimates, Intervals, Limits, Split, TokenRange, cut, deal

_GROWTH: Final = 4
_LEAST_SHARE: Final = 1 << 20
"""The smallest range is this share of the ring: each round costs some jobs of Spark's."""

Owned = Sequence[tuple[TokenRange, tuple[str, ...]]]


def plan_round(owned: Owned, estimates: Estimates, limits: Limits, remaining: Intervals) -> list[tuple[Split, ...]]:
    """The splits of each task of the next round; none where nothing remains.

    Tasks that read at once ask different nodes, as far as there are some.
    """
    splits = cut(owned, estimates, limits, remaining)
    dealt = deal(splits, replace(limits, at_once=None, at_once_per_node=None))
    at_once = limits.at_once or len(dealt)
    per_node = limits.at_once_per_node or at_once
    chosen: list[tuple[Split, ...]] = []
    of_node: Counter[str] = Counter()
    for share in range(1, per_node + 1):  # a task of each node first, then a second one
        for task in dealt:
            if len(chosen) == at_once:
                return chosen
            node = _node(task)
            if of_node[node] < share and task not in chosen:
                chosen.append(task)
                of_node[node] += 1
    return chosen


def again(owned: Owned, slots: Iterable[Intervals]) -> list[tuple[Split, ...]]:
    """The splits of a round that was planned before: the same tokens, at the replicas that they have now."""
    uncut = Limits(1 << 62)
    return [tuple(cut(owned, Estimates(), uncut, slot)) for slot in slots]


def tasks_of(slots: Sequence[Sequence[Split]], per_node: int | None) -> list[tuple[int, ...]]:
    """The numbers of the slots that each task reads, one after the other: no more tasks ask a node than its limit.

    A round that was planned while other nodes were up may have more slots of one node than that.
    """
    groups: list[tuple[list[int], set[str]]] = []
    for slot, splits in enumerate(slots):
        nodes = {split.replicas[0] if split.replicas else "" for split in splits}
        touching = [group for group in groups if group[1] & nodes]
        tasks_of_node = Counter([node for _, group_nodes in touching for node in group_nodes & nodes])
        if per_node is None or all(tasks_of_node[node] < per_node for node in nodes):
            groups.append(([slot], nodes))
            continue
        fitting = [
            group for group in touching if all(node in group[1] or tasks_of_node[node] < per_node for node in nodes)
        ]
        if fitting:
            numbers, group_nodes = min(fitting, key=lambda group: len(group[0]))
            numbers.append(slot)
            group_nodes |= nodes
        else:  # all that ask one of its nodes become one
            groups = [group for group in groups if not group[1] & nodes]
            joined = [earlier for group in touching for earlier in group[0]]
            groups.append(([*joined, slot], nodes.union(*[group[1] for group in touching])))
    return [tuple(numbers) for numbers, _ in groups]


def next_least(least: int, limit: int, largest: int) -> int:
    """The least number of ranges of the ring for the next round, where the largest one read now had so many bytes."""
    if largest * _GROWTH <= limit:
        return max(1, least // _GROWTH)
    return min(_LEAST_SHARE, least * 2) if largest > 2 * limit else least


def _node(task: Sequence[Split]) -> str:
    return task[0].replicas[0] if task[0].replicas else ""
