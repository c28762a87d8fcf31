"""Filters of rows in current tables of each lake, by the driver and by tasks: what takes the merge's fast path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tailrace_spark.sinks.delta.settings import DeltaSinkSettings
from tailrace_spark.sinks.iceberg.settings import IcebergSinkSettings
from tests.unit.spark.sinks.delta.stores import DeltaCurrentInTasks, FollowedDelta
from tests.unit.spark.sinks.iceberg.stores import FollowedIceberg, IcebergCurrentInTasks
from tests.unit.spark.sinks.lake.current_contract import FollowedLake
from tests.unit.spark.sinks.lake.row_filter_contract import LakeRowFilterContract


def delta(path: Path) -> DeltaSinkSettings:
    return DeltaSinkSettings(path=str(path), mode="current", buckets=3)


def iceberg(path: Path) -> IcebergSinkSettings:
    return IcebergSinkSettings(path=str(path), mode="current", buckets=3)


LAKES: Final[dict[str, Callable[[Path], FollowedLake]]] = {
    "delta": lambda path: FollowedDelta(delta(path)),
    "delta, tasks": lambda path: DeltaCurrentInTasks(delta(path)),
    "iceberg": lambda path: FollowedIceberg(iceberg(path)),
    "iceberg, tasks": lambda path: IcebergCurrentInTasks(iceberg(path)),
}


@pytest.fixture(params=LAKES)
def followed(request: pytest.FixtureRequest, tmp_path: Path) -> FollowedLake:
    return LAKES[request.param](tmp_path)


@pytest.mark.slow
@pytest.mark.promise("shaping.row-filter")
def test_a_row_comes_with_all_its_columns_and_goes(followed: FollowedLake) -> None:
    LakeRowFilterContract().test_a_row_comes_with_all_its_columns_and_goes(followed)


@pytest.mark.slow
@pytest.mark.promise("shaping.row-filter")
def test_a_row_has_nothing_of_a_row_that_does_not_match(followed: FollowedLake) -> None:
    LakeRowFilterContract().test_a_row_has_nothing_of_a_row_that_does_not_match(followed)


@pytest.mark.slow
def test_a_batch_that_shows_nothing_is_no_gap(followed: FollowedLake, caplog: pytest.LogCaptureFixture) -> None:
    LakeRowFilterContract().test_a_batch_that_shows_nothing_is_no_gap(lambda: followed, caplog)
