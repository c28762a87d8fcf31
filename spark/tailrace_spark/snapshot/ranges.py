"""Token ranges: the ring cut into splits and dealt to tasks or rounds, sets of tokens, and how much a read is. No I/O.

A ring that is cut otherwise later, as nodes join or leave, changes nothing in sets of tokens. Estimates of nodes may be
wrong, or of what is flushed alone. So the ranges of rounds begin as small shares of the ring. They grow while they come
out small, and are halved where they come out large.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import attrgetter
from typing import Final, TypeVar

from tailrace_schemas.errors import SettingsError
from tailrace_schemas.tokens import MAX_TOKEN, MIN_TOKEN

Item = TypeVar("Item")
_WIDTH: Final = MAX_TOKEN - MIN_TOKEN
_MOST_CUTS: Final = 10_000
"""Splits of one range of the ring: estimates may be wrong, and each split costs a request."""
SAMPLE_ROWS: Final = 200
"""Rows of a sample, at most."""
_SAMPLES: Final = 16
_GROWTH: Final = 4
_LEAST_SHARE: Final = 1 << 20
"""The smallest range of a round is this share of the ring: each round costs some jobs of Spark's."""


@dataclass(frozen=True, slots=True)
class TokenRange:
    """The tokens above `start`, up to and including `end`, as Cassandra's ranges are. It never wraps: start < end."""

    start: int = MIN_TOKEN
    end: int = MAX_TOKEN

    def __post_init__(self) -> None:
        if not MIN_TOKEN <= self.start < self.end <= MAX_TOKEN:
            raise ValueError(f"({self.start}, {self.end}] is no range of tokens")

    @property
    def width(self) -> int:
        """How many tokens it has."""
        return self.end - self.start

    @property
    def bounds(self) -> tuple[bytes, bytes]:
        """What is bound to a statement that reads it (`selection`), in Cassandra's bytes."""
        return self.start.to_bytes(8, "big", signed=True), self.end.to_bytes(8, "big", signed=True)

    def shared_width(self, other: TokenRange) -> int:
        """How many tokens both have."""
        return max(0, min(self.end, other.end) - max(self.start, other.start))


@dataclass(frozen=True, slots=True)
class Split:
    """A range that is read by itself, its replicas (the one to ask first is first), and its estimated bytes."""

    range: TokenRange
    replicas: tuple[str, ...]
    octets: float = 0.0

    @property
    def node(self) -> str:
        """The one to ask first; empty: there is none."""
        return self.replicas[0] if self.replicas else ""


@dataclass(frozen=True, slots=True)
class Limits:
    """How a read is cut: bytes of a split, splits of the whole ring at the least, and how many are read at once.

    `at_once`: of all nodes; `at_once_per_node`: of each node. None: as many as Spark has cores for.
    """

    split_octets: int
    least_splits: int = 1
    at_once: int | None = None
    at_once_per_node: int | None = None


def unwrapped(start: int, end: int) -> tuple[TokenRange, ...]:
    """The range from `start`, exclusive, to `end`: two where it wraps, none from the last token to the first.

    start = end is the whole ring.
    """
    if start < end:
        return (TokenRange(start, end),)
    upper = (TokenRange(start, MAX_TOKEN),) if start < MAX_TOKEN else ()
    lower = (TokenRange(MIN_TOKEN, end),) if end > MIN_TOKEN else ()
    return (*upper, *lower)


def parse_range(text: str) -> tuple[TokenRange, ...]:
    """The ranges of `START,END` (start exclusive, end inclusive; it may wrap). Raises SettingsError."""
    try:
        start, end = (int(token) for token in text.split(","))
    except ValueError:
        raise SettingsError(f"token_range is START,END, such as -100,100, not {text!r}") from None
    if not (MIN_TOKEN <= start <= MAX_TOKEN and MIN_TOKEN <= end <= MAX_TOKEN):
        raise SettingsError(f"token_range has tokens from {MIN_TOKEN} to {MAX_TOKEN}, not {text!r}")
    ranges = unwrapped(start, end)
    if not ranges:
        raise SettingsError(f"token_range {text} has no token in it")
    return ranges


def ring_ranges(tokens: Iterable[int]) -> Iterator[tuple[TokenRange, int]]:
    """The ranges of a ring in its order, each with the token whose node has it. They cover each token once."""
    ordered = sorted(set(tokens))
    for previous, token in zip([MIN_TOKEN, *ordered[:-1]], ordered, strict=True):
        if previous < token:
            yield TokenRange(previous, token), token
    if ordered and ordered[-1] < MAX_TOKEN:
        yield TokenRange(ordered[-1], MAX_TOKEN), ordered[0]


@dataclass(frozen=True, slots=True)
class Estimates:
    """What nodes estimate of a table: ranges in order, and the bytes in each.

    Each node estimates its own primary ranges, of what it has flushed (system.size_estimates). Ranges that no node
    told of count as the others on average.
    """

    ranges: tuple[TokenRange, ...] = ()
    octets: tuple[float, ...] = ()
    _starts: tuple[int, ...] = field(init=False, repr=False)
    _density: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_starts", tuple([token_range.start for token_range in self.ranges]))
        width = sum([token_range.width for token_range in self.ranges])
        object.__setattr__(self, "_density", sum(self.octets) / width if width else 0.0)

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, int, int]]) -> Estimates:
        """Of rows (range_start, range_end, mean_partition_size, partitions_count); ranges may wrap."""
        octets_by_range: dict[TokenRange, float] = {}
        for start, end, size, partitions in rows:
            ranges = unwrapped(start, end)
            width = sum([token_range.width for token_range in ranges])
            for token_range in ranges:
                octets_by_range[token_range] = max(0, size) * max(0, partitions) * (token_range.width / width)
        ordered = sorted(octets_by_range, key=attrgetter("start"))
        return cls(tuple(ordered), tuple([octets_by_range[token_range] for token_range in ordered]))

    def octets_of(self, token_range: TokenRange) -> float:
        """The estimated bytes in a range."""
        octets, covered = 0.0, 0
        index = max(0, bisect_right(self._starts, token_range.start) - 1)
        while index < len(self.ranges) and self.ranges[index].start < token_range.end:
            shared = self.ranges[index].shared_width(token_range)
            octets += self.octets[index] * (shared / self.ranges[index].width)
            covered += shared
            index += 1
        return octets + max(0, token_range.width - covered) * self._density


def cut(
    owned: Iterable[tuple[TokenRange, tuple[str, ...]]],
    estimates: Estimates,
    limits: Limits,
    within: Sequence[TokenRange] = (TokenRange(),),
) -> list[Split]:
    """The splits of a ring's ranges (with their replicas) that lie `within` ranges which do not overlap.

    None has more bytes than the limit, by the estimates. In their order they cover each token once.
    """
    splits: list[Split] = []
    # A ring of vnodes has thousands of ranges, and so has what is left of it between two rounds.
    ordered = sorted(within, key=attrgetter("start"))
    starts, ends = [limit_range.start for limit_range in ordered], [limit_range.end for limit_range in ordered]
    for token_range, replicas in owned:
        first, last = bisect_right(ends, token_range.start), bisect_left(starts, token_range.end)
        for limit_range in ordered[first:last]:
            common = TokenRange(max(token_range.start, limit_range.start), min(token_range.end, limit_range.end))
            octets = estimates.octets_of(common)
            by_width = -(-limits.least_splits * common.width // _WIDTH)
            by_octets = min(_MOST_CUTS, int(-(-octets // limits.split_octets)))
            count = min(common.width, max(by_width, by_octets, 1))
            splits += [Split(tokens, replicas, octets / count) for tokens in parts(common, count)]
    return splits


def parts(token_range: TokenRange, count: int) -> Iterator[TokenRange]:
    """A range cut into so many, which are equally wide."""
    start, width = token_range.start, token_range.width
    bounds = [start + width * index // count for index in range(count + 1)]
    for lower, upper in pairwise(bounds):
        yield TokenRange(lower, upper)


def deal(splits: Sequence[Split], limits: Limits) -> list[tuple[Split, ...]]:
    """The splits of each task, which reads them one after the other: all of one node, where that is possible.

    Without limits on what is read at once, small splits go together until they have a split's bytes, or its share of
    the ring. With limits there are as many tasks as may run at once, and each node is asked by no more than its limit.
    """
    by_node: dict[str, list[Split]] = {}
    for split in splits:
        by_node.setdefault(split.node, []).append(split)
    if limits.at_once is None and limits.at_once_per_node is None:
        return [task for node in by_node.values() for task in _together(node, limits)]
    per_node = limits.at_once_per_node or limits.at_once or 1
    tasks = [tuple(dealt) for node in by_node.values() for dealt in _round_robin(node, per_node)]
    if limits.at_once is not None and len(tasks) > limits.at_once:
        merged = _round_robin(tasks, limits.at_once)
        tasks = [tuple([split for task in some for split in task]) for some in merged]
    return tasks


def _together(splits: Iterable[Split], limits: Limits) -> Iterator[tuple[Split, ...]]:
    collected: list[Split] = []
    weight = 0.0
    for split in splits:
        share = max(split.octets / limits.split_octets, split.range.width * limits.least_splits / _WIDTH)
        if collected and weight + share > 1.000001:
            yield tuple(collected)
            collected, weight = [], 0.0
        collected.append(split)
        weight += share
    if collected:
        yield tuple(collected)


def _round_robin(items: Sequence[Item], count: int) -> list[list[Item]]:
    return [list(items[first::count]) for first in range(min(count, len(items)))]


Sample = tuple[int, int]
"""So many rows were found in so many tokens of the ring."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a read would be. `rows` is None where nothing tells, `octets` are those of flushed data on disk.

    `seconds` is how long it takes at the rows a second that were asked for; None: no limit, or no rows are known.
    """

    ranges: int
    tasks: int
    rows: int | None
    octets: int
    seconds: int | None


def sampled(splits: Sequence[Item]) -> Sequence[Item]:
    """Some of the splits, evenly spread."""
    step = max(1, len(splits) // _SAMPLES)
    return splits[step // 2 :: step][:_SAMPLES]


def sample_of(token_range: TokenRange, tokens: Sequence[int], *, is_whole: bool) -> Sample:
    """A sample of a range's first rows, by their tokens; `is_whole`: there are no others in the range."""
    if is_whole or not tokens:
        return len(tokens), token_range.width
    return len(tokens), max(1, tokens[-1] - token_range.start)


def estimate(splits: Sequence[Split], tasks: int, samples: Iterable[Sample], rows_per_second: float | None) -> Estimate:
    """What reading the splits would be, by so many tasks."""
    rows_sampled, width_sampled = map(sum, zip((0, 0), *samples, strict=True))
    rows: int | None = None
    if width_sampled:
        rows = round(rows_sampled * width(split.range for split in splits) / width_sampled)
    octets = round(sum([split.octets for split in splits]))
    seconds = None if rows is None or rows_per_second is None else round(rows / rows_per_second)
    return Estimate(len(splits), tasks, rows, octets, seconds)


Intervals = tuple[TokenRange, ...]
WHOLE: Intervals = (TokenRange(),)
"""The whole ring."""


def union(*sets: Iterable[TokenRange]) -> Intervals:
    """All tokens of these ranges, which may overlap and come in any order."""
    joined: list[TokenRange] = []
    for token_range in sorted((token_range for ranges in sets for token_range in ranges), key=attrgetter("start")):
        if joined and token_range.start <= joined[-1].end:
            joined[-1] = TokenRange(joined[-1].start, max(joined[-1].end, token_range.end))
        else:
            joined.append(token_range)
    return tuple(joined)


def without(ranges: Intervals, removed: Intervals) -> Intervals:
    """The tokens of `ranges` that are not in `removed`."""
    remaining: list[TokenRange] = []
    index = 0
    for token_range in ranges:
        start = token_range.start
        while index and removed[index - 1].end > start:
            index -= 1
        while index < len(removed) and removed[index].end <= start:
            index += 1
        while index < len(removed) and removed[index].start < token_range.end:
            if removed[index].start > start:
                remaining.append(TokenRange(start, removed[index].start))
            start = max(start, removed[index].end)
            index += 1
        if start < token_range.end:
            remaining.append(TokenRange(start, token_range.end))
    return tuple(remaining)


def pairs_of(ranges: Iterable[TokenRange]) -> list[list[int]]:
    """The ranges as JSON has them, [start, end] of (start, end]."""
    return [[token_range.start, token_range.end] for token_range in ranges]


def from_pairs(pairs: Iterable[Sequence[int]]) -> Intervals:
    """The way back. Raises ValueError, TypeError."""
    return tuple([TokenRange(start, end) for start, end in pairs])


def width(ranges: Iterable[TokenRange]) -> int:
    """How many tokens they have."""
    return sum(token_range.width for token_range in ranges)


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
            node = task[0].node
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
        nodes = {split.node for split in splits}
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
