"""Charts: what is known between two samples, gaps, and lines that stay in their box."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_server.meta.history import KEPT_MS, STEP_MS, Sample
from tailrace_server.web.views import HEIGHT, WIDTH, lag_chart, number_words, rate_chart, rates


def samples(*values: tuple[int, int, int | None, int]) -> list[Sample]:
    """Of steps, what was reached, how many were behind, and partitions."""
    return [
        Sample(taken=step * STEP_MS, reached=reached, behind=behind, partitions=partitions)
        for step, reached, behind, partitions in values
    ]


def test_a_rate_is_known_between_two_samples_of_the_same_partitions() -> None:
    history = samples((0, 0, 0, 1), (1, 300, 0, 1), (2, 300, 0, 1), (3, 900, 0, 2), (4, 100, 0, 2), (20, 400, 0, 2))
    assert [rate for _, rate in rates(history)] == [10.0, 0.0, None, None, None]


def test_a_line_has_a_gap_where_nothing_is_known() -> None:
    chart = lag_chart(samples((0, 0, 5, 1), (1, 0, 7, 1), (2, 0, None, 1), (3, 0, 2, 1)), KEPT_MS)
    assert (chart.line.count("M"), chart.area.count("Z"), chart.last) == (2, 2, 2.0)
    assert chart.words == "now 2, at most 7 records in the last hour"


def test_without_figures_it_says_so() -> None:
    assert lag_chart([], KEPT_MS).words == rate_chart(samples((0, 1, 1, 1)), KEPT_MS).words == "no figures yet"


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.integers(0, 200), st.integers(0, 10**12), st.none() | st.integers(0, 10**12), st.integers(1, 3)),
        unique_by=lambda value: value[0],
    )
)
def test_every_point_is_in_the_box(values: list[tuple[int, int, int | None, int]]) -> None:
    history = samples(*sorted(values))
    for chart in (lag_chart(history, KEPT_MS), rate_chart(history, KEPT_MS)):
        for x, y in re.findall(r"([\d.]+) ([\d.-]+)", chart.line + chart.area):
            assert 0 <= float(x) <= WIDTH
            assert 0 <= float(y) <= HEIGHT


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "–"),  # noqa: RUF001
        (0, "0"),
        (0.25, "0.2"),
        (9.5, "9.5"),
        (950, "950"),
        (9_999, "9,999"),
        (27_200, "27.2 k"),
        (3_400_000, "3.4 M"),
        (5e9, "5.0 G"),
    ],
)
def test_numbers_fit_a_column(value: float | None, words: str) -> None:
    assert number_words(value) == words
