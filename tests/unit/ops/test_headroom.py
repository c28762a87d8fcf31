"""How full cdc_raw is, and when it will be full."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.ops.headroom import Headroom, Meter, NodeLimits, limits_of

MIB = 1 << 20


@pytest.mark.parametrize(
    ("settings", "limits"),
    [
        ({}, NodeLimits(None, None, True)),
        (
            {"cdc_total_space": "4096MiB", "commitlog_segment_size": "32MiB", "cdc_block_writes": "true"},
            NodeLimits(4096 * MIB, 32 * MIB, False),
        ),
        (
            {"commitlog_total_space": "8GiB", "commitlog_segment_size": "1MiB", "cdc_block_writes": "true"},
            NodeLimits(None, MIB, False, 16_384),
        ),
        ({"commitlog_total_space": "8GiB"}, NodeLimits(None, None, False)),
        ({"cdc_total_space": "1GiB", "cdc_block_writes": "false"}, NodeLimits(1024 * MIB, None, True)),
        (
            {"cdc_total_space_in_mb": "512", "commitlog_segment_size_in_mb": "32"},  # 4.0
            NodeLimits(512 * MIB, 32 * MIB, False),
        ),
        ({"cdc_total_space": "much", "cdc_block_writes": "true"}, NodeLimits(None, None, False)),
        ({"cdc_total_space": "0", "cdc_block_writes": "true"}, NodeLimits(None, None, False)),
    ],
)
def test_what_the_node_says(settings: dict[str, str], limits: NodeLimits) -> None:
    assert limits_of(settings) == limits


def test_an_unknown_limit_is_said() -> None:
    one = Headroom(3 * MIB, None, 100.0)
    assert (one.fraction, one.seconds) == (None, None)
    assert str(one) == "3 MiB in cdc_raw; its limit is unknown, as the node's settings cannot be read"


@pytest.mark.parametrize(
    ("used", "rate", "seconds", "words"),
    [
        (50 * MIB, None, None, "50 MiB of 100 MiB in cdc_raw (50 %)"),
        (50 * MIB, 0.0, None, "50 MiB of 100 MiB in cdc_raw (50 %)"),
        (50 * MIB, -5.0, None, "50 MiB of 100 MiB in cdc_raw (50 %)"),
        (90 * MIB, MIB / 2, 20.0, "90 MiB of 100 MiB in cdc_raw (90 %), full in about 20 s at the present rate"),
        (40 * MIB, MIB / 3600, 216_000, "40 MiB of 100 MiB in cdc_raw (40 %), full in about 2 d at the present rate"),
        (130 * MIB, 1.0, 0.0, "130 MiB of 100 MiB in cdc_raw (130 %), full in about 0 s at the present rate"),
    ],
)
def test_when_it_will_be_full(used: int, rate: float | None, seconds: float | None, words: str) -> None:
    one = Headroom(used, 100 * MIB, rate)
    assert one.seconds == pytest.approx(seconds)
    assert str(one) == words


def test_the_rate_is_that_of_the_last_minutes() -> None:
    """Not known at first; then from the oldest sample that the window has."""
    meter = Meter(window=10)
    assert meter.add(0, 0) is None
    assert meter.add(0.5, 10) is None
    assert meter.add(2, 20) == 10
    assert meter.add(10, 100) == 10
    assert meter.add(20, 100) == 0
    assert meter.add(30, 0) == -10


@given(st.lists(st.integers(0, 1000), min_size=3, max_size=60), st.integers(2, 20))
def test_the_meter_keeps_no_more_than_its_window(sizes: list[int], window: int) -> None:
    """Compared with all samples kept: a rate over the window or, at the start, over what there is."""
    meter = Meter(window)
    for now, size in enumerate(sizes):
        rate = meter.add(now, size)
        since = max(0, now - window)
        assert rate == (None if now == 0 else pytest.approx((size - sizes[since]) / (now - since)))
