"""A ring as shapes: who holds how much of it, which tokens stand at which angle, and what is drawn together."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import pi
from typing import Final

from tailrace_schemas.ring import Node, Ring
from tailrace_schemas.streams import Generation, StreamId, stream_for
from tailrace_schemas.tokens import MIN_TOKEN

MOST_SECTORS: Final = 1_200
"""More ranges than that in one datacenter would each be thinner than a pixel: they are drawn by the slice."""
SLICES: Final = 360

_RING: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class Range:
    """The tokens after `start` up to `end`, and who of the datacenter holds them."""

    start: int
    end: int
    node: Node

    @property
    def tokens(self) -> int:
        """How many tokens; the whole ring where there is only one range."""
        return (self.end - self.start - 1) % _RING + 1

    @property
    def angles(self) -> tuple[float, float]:
        """Where it begins and how far it goes, in radians, clockwise from the top."""
        return angle_of(self.start), self.tokens / _RING * 2 * pi


@dataclass(frozen=True, slots=True)
class Share:
    """How much of the ring one node holds: the part of all tokens of which it is its datacenter's first replica."""

    node: Node
    part: float


@dataclass(frozen=True, slots=True)
class Circle:
    """One datacenter: its ranges, of its own nodes' tokens alone, and its nodes, the largest share first.

    `slices` are the numbers of ranges that end in each of SLICES equal parts of the ring. It is empty where the ranges
    are few enough to be drawn.
    """

    datacenter: str
    ranges: tuple[Range, ...]
    shares: tuple[Share, ...]
    slices: tuple[int, ...] = ()

    def range_of(self, token: int) -> Range:
        """The range in which a token falls."""
        index = bisect_left(self.ranges, token, key=lambda token_range: token_range.end)
        return self.ranges[index if index < len(self.ranges) else 0]


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """A key in the picture: its label, its token, its stream, the entry's range, and who holds it, by datacenter."""

    label: str
    token: int
    stream: StreamId
    start: int
    end: int
    owners: tuple[tuple[str, Node], ...]

    @property
    def part(self) -> float:
        """How much of the ring the entry's range is."""
        return ((self.end - self.start - 1) % _RING + 1) / _RING


def angle_of(token: int) -> float:
    """A token's place on the circle in radians, clockwise from the top, where the smallest token stands."""
    return (token - MIN_TOKEN) / _RING * 2 * pi


def circles(ring: Ring) -> tuple[Circle, ...]:
    """A circle for each datacenter, by name."""
    nodes: dict[str, list[Node]] = {}
    for node in ring.nodes:
        if node.tokens:
            nodes.setdefault(node.datacenter, []).append(node)
    return tuple(_circle(name, members) for name, members in sorted(nodes.items()))


def place(generation: Generation, around: Sequence[Circle], label: str, token: int) -> KeyPlace:
    """Where a token falls."""
    ends = [entry.token_range_end for entry in generation.entries]
    index = bisect_left(ends, token) % len(ends)
    owners = tuple((circle.datacenter, circle.range_of(token).node) for circle in around)
    return KeyPlace(label, token, stream_for(generation, token), ends[index - 1], ends[index], owners)


def _circle(datacenter: str, nodes: Sequence[Node]) -> Circle:
    owners = sorted((token, node) for node in nodes for token in node.tokens)
    ranges = tuple(Range(start, token, node) for (start, _), (token, node) in pairwise([owners[-1], *owners]))
    tokens: dict[str, int] = {}
    for owned in ranges:
        tokens[owned.node.host] = tokens.get(owned.node.host, 0) + owned.tokens
    shares = sorted((Share(node, tokens[node.host] / _RING) for node in nodes), key=lambda s: (-s.part, s.node.host))
    return Circle(datacenter, ranges, tuple(shares), _slices(ranges) if len(ranges) > MOST_SECTORS else ())


def _slices(ranges: Sequence[Range]) -> tuple[int, ...]:
    counts = [0] * SLICES
    for owned in ranges:
        counts[(owned.end - MIN_TOKEN) * SLICES // _RING] += 1
    return tuple(counts)
