"""What streams take, by measured costs: the arithmetic, and that docs/sizing.md says what it gives."""

from __future__ import annotations

import re
from dataclasses import replace
from math import ceil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.errors import SettingsError
from tailrace_spark.sizing import COSTS, Costs, Load, Size, size

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "sizing.md").read_text(encoding="utf-8")
PERFORMANCE = (Path(__file__).resolve().parents[3] / "docs" / "performance.md").read_text(encoding="utf-8")
COST = Costs(record=100, store=10, partition=10, driver_batch=200, driver_partition=1)


def row_of(sink: str, size: Size) -> str:
    """A sink's row of the page's table."""
    return (
        f"| {sink} | {size.executor_cores:,} | {size.partitions:,} | {size.streams} | {size.driver_share:.0%} | "
        f"{size.store_cores:,} |"
    )


def test_one_stream_by_hand() -> None:
    """100,000 records a second at 100 us: 100 s of work in each batch of 10 s.

    A core has 70 % of 10 s, less 0.2 s of the driver and 20 ms of its two partitions, less 2 ms of the driver for each
    core: 15 cores have 15 * (6.78 - 0.03) = 101.25 s.
    """
    assert size(Load(100_000), COST) == Size(
        streams=1,
        executor_cores=15,
        partitions=30,
        driver_share=0.023,
        store_cores=2,
        broker_cores=1,
        agent_cores=2,
        written=75_000_000,
        read=25_000_000,
    )


def test_a_load_that_one_driver_cannot_lead_is_of_several_streams() -> None:
    slow = replace(COST, driver_partition=100)
    assert size(Load(100_000), slow).streams > 1


def test_batches_that_are_too_short_are_refused() -> None:
    with pytest.raises(SettingsError, match="too short"):
        size(Load(1_000, batch_seconds=0.2), COST)


costs = st.builds(
    Costs,
    record=st.floats(1, 500),
    store=st.floats(0, 500),
    partition=st.floats(0, 20),
    driver_batch=st.floats(0, 500),
    driver_partition=st.floats(0, 5),
)


@given(st.floats(1, 3_000_000), st.floats(5, 60), costs)
def test_a_batch_ends_before_the_next_one_is_due(records: float, seconds: float, cost: Costs) -> None:
    """Simulated: the driver's part, then each core its share of the records and of the partitions."""
    load = Load(records, batch_seconds=seconds)
    result = size(load, cost)
    cores, partitions = result.executor_cores / result.streams, result.partitions / result.streams
    driver = (cost.driver_batch + cost.driver_partition * partitions) / 1e3
    work = records / result.streams * seconds * cost.record / 1e6 + partitions * cost.partition / 1e3
    assert driver + work / cores <= seconds * load.busy + 1e-6
    assert result.driver_share == pytest.approx(driver / seconds)
    if result.executor_cores == 1:
        return
    fewer = replace(load, records=records / result.streams)
    needed = fewer.records * seconds * cost.record / 1e6 / (seconds * load.busy)
    assert cores >= ceil(needed)  # no less than without any cost of batches


def test_the_page_has_what_it_gives() -> None:
    rows = [row_of(sink, size(Load(3_000_000), cost)) for sink, cost in COSTS.items()]
    assert re.findall(r"(?m)^\| `.*\|$", PAGE.partition("## 3,000,000")[2]) == rows


def test_the_page_has_the_costs() -> None:
    rows = [
        f"| {sink} | {cost.record:g} | {cost.store:g} | {cost.partition:g} | {cost.driver_batch:g} | "
        f"{cost.driver_partition:g} |"
        for sink, cost in COSTS.items()
    ]
    assert re.findall(r"(?m)^\| `.*\|$", PAGE.partition("## 3,000,000")[0]) == rows
