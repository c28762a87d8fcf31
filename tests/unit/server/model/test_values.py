"""Names, starts, shares and waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_server.model.delivery import PartitionProgress, fair_portion, total_behind
from tailrace_server.model.subscription import RefusedRequestError, Start, TableName, require_name


@pytest.mark.parametrize(
    "text", ["orders", "shop.", ".orders", "shop.or-ders", "a.b.c", "shop orders.x", "", "k." + "t" * 223]
)
def test_a_table_has_a_keyspace(text: str) -> None:
    with pytest.raises(RefusedRequestError, match=r"must be KEYSPACE\.TABLE"):
        TableName.parse("c", text)


def test_patterns_are_told() -> None:
    assert [TableName.parse("c", text).pattern for text in ("shop.orders", "shop.*", "?.orders")] == [False, True, True]
    assert str(TableName.parse("c", "shop.Orders")) == "shop.Orders"
    assert str(TableName.parse("c", longest := f"{'k' * 48}.{'t' * 222}")) == longest


@pytest.mark.parametrize("name", ["", "-a", "a b", "a/b", "a" * 65, "ü"])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(RefusedRequestError, match="may have letters"):
        require_name(name)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("2026-05-01T12:00:00Z", "2026-05-01T12:00:00.000+00:00"),
        ("2026-05-01T12:00:00+02:00", "2026-05-01T10:00:00.000+00:00"),
        ("2026-05-01", "2026-05-01T00:00:00.000+00:00"),
        ("9999-12-31T23:59:59.9999Z", "9999-12-31T23:59:59.999+00:00"),
        ("0001-01-01", "1970-01-01T00:00:00.000+00:00"),
    ],
)
def test_starts_are_read_and_shown(text: str, shown: str) -> None:
    start = Start.parse(text)
    assert str(start) == shown
    assert Start.parse(str(start)) == start


@pytest.mark.parametrize("text", ["now", "9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00"])
def test_a_start_that_is_none(text: str) -> None:
    with pytest.raises(RefusedRequestError, match="must be earliest, latest, or a time"):
        Start.parse(text)


@given(st.integers(0, 1000), st.lists(st.integers(0, 200), min_size=1, max_size=50))
def test_portions_cover_everything_and_are_no_larger_than_that_takes(subscriptions: int, limits: list[int]) -> None:
    portion = fair_portion(subscriptions, limits)
    assert sum(min(portion, limit) for limit in limits) >= min(subscriptions, sum(limits))
    assert sum(min(portion - 1, limit) for limit in limits) < max(1, min(subscriptions, sum(limits)))


def test_what_is_behind() -> None:
    assert total_behind([PartitionProgress(3, 10), PartitionProgress(5, 4), PartitionProgress(1)]) == 7
    assert total_behind([PartitionProgress(3)]) is None
