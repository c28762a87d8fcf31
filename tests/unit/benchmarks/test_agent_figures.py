"""The figures of the agent's benchmark, against numbers that can be counted on one's fingers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.agent.figures import Sample, catch_up_of, cpu_seconds, most_memory_mb, percentile
from benchmarks.decode import _memory


def test_catch_up_counts_from_the_first_record_to_the_last() -> None:
    samples = [
        Sample(1.0, 0, 0.5),
        Sample(2.0, 102, 1.0),
        Sample(6.0, 612, 3.0),
        Sample(10.0, 1020, 5.0),
        Sample(13.0, 1020, 5.5),
    ]
    found = catch_up_of(samples, 1000, idle_cpu=6.0, memory_mb=50, broker_cpu=2.0)
    assert (found.first, found.last, found.cpu) == (2.0, 10.0, 5.0)
    assert (found.rate, found.whole_rate) == (125.0, 100.0)
    assert found.per_million(found.cpu) == 5000.0
    assert found.steady_cpu == pytest.approx((5.0 - 1.0) / 900 * 1e6)


@pytest.mark.slow
@given(st.lists(st.integers(0, 1000).map(float), min_size=1), st.integers(1, 100))
def test_percentile_is_the_smallest_value_that_enough_others_do_not_exceed(
    values: list[float], hundredths: int
) -> None:
    found = percentile(values, hundredths / 100)
    assert sum(value <= found for value in values) * 100 >= hundredths * len(values)
    assert sum(value < found for value in values) * 100 < hundredths * len(values)


def test_cpu_seconds_count_fields_behind_the_name_whatever_it_is() -> None:
    fields = " ".join(str(number) for number in range(4, 53))
    assert cpu_seconds(f"7 (a) b (c) S {fields}", 100) == (14 + 15) / 100


def test_most_memory_is_in_megabytes() -> None:
    assert most_memory_mb("Name:\tx\nVmPeak:\t  99 kB\nVmHWM:\t  2048 kB\n") == 2.0
    with pytest.raises(ValueError, match="VmHWM"):
        most_memory_mb("Name:\tx\n")


@pytest.mark.slow
def test_the_memory_of_a_child_is_not_its_parents(tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text('{"tables": [], "columns": []}')
    ballast = b"x" * (300 << 20)
    assert 10 < _memory(tmp_path, 1) < 150 < len(ballast) >> 20
