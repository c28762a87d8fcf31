"""The token ring: arcs as long as their ranges, in their places, and none that nobody would see."""

from __future__ import annotations

import re
from math import atan2, pi

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.tokens import MAX_TOKEN, MIN_TOKEN
from tailrace_server.web.ring import arcs

TOKENS = st.integers(MIN_TOKEN, MAX_TOKEN)
ARC = re.compile(r"M([\d.]+) ([\d.]+)A78 78 0 0 1 ([\d.]+) ([\d.]+)")


def turns(path: str) -> list[tuple[float, float]]:
    """Where each arc begins and ends, 0 to 1 clockwise from the top, worked back from its points."""
    found = [[float(number) for number in match] for match in ARC.findall(path)]
    return [
        (atan2(x1 - 100, 100 - y1) / 2 / pi % 1, atan2(x2 - 100, 100 - y2) / 2 / pi % 1) for x1, y1, x2, y2 in found
    ]


@given(TOKENS, TOKENS)
def test_an_arc_is_as_long_as_its_range(one: int, other: int) -> None:
    start, end = sorted((one, other))
    length = sum((end - begin) % 1 for begin, end in turns(arcs([(start, end)])) if begin != end)
    assert length == pytest.approx((end - start) / 2**64, abs=0.001)


@pytest.mark.parametrize(
    ("ranges", "count"),
    [
        ([], 0),
        ([(MIN_TOKEN, MAX_TOKEN)], 2),
        ([(MIN_TOKEN, 0)], 1),
        ([(0, 1 << 40), (1 << 41, 1 << 42)], 1),
        ([(-(1 << 62), 0), (1 << 61, 1 << 62)], 2),
    ],
)
def test_ranges_are_drawn_together_where_nobody_sees_them_apart(ranges: list[tuple[int, int]], count: int) -> None:
    assert len(ARC.findall(arcs(ranges))) == count


@pytest.mark.slow
def test_many_ranges_make_a_short_path() -> None:
    step = 2**64 // 100_000
    ranges = [(MIN_TOKEN + index * step, MIN_TOKEN + index * step + step // 2) for index in range(100_000)]
    assert len(arcs(ranges)) < 100_000
