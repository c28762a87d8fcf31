"""Dead letters of an iceberg sink, held to their contract."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace_common.settings.sinks.iceberg import IcebergSinkSettings
from tailrace_spark.sinks.changelog.replayable import ReplayingLogSink
from tailrace_spark.sinks.lake.dead_letters import ReplayingCurrent, ReplayingHistory
from tailrace_spark.sinks.protocol import LetterSink
from tests.integration.lake.iceberg import Lake
from tests.unit.spark.sinks.letters_contract import LettersContract

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Lettered(Lake):
    """Iceberg tables of either mode."""

    exactly_once = True

    def open(self, dies_after: int | None = None) -> LetterSink:
        store = self.opened(dies_after, revives=False)
        if self.settings.mode == "current":
            return ReplayingCurrent(store, self.settings.buckets)
        return ReplayingLogSink(ReplayingHistory(store))

    def ids(self) -> Sequence[int]:
        rows = self.rows_of("shop.plain")
        found = [] if rows is None else rows.to_pylist()
        return [one["key"]["id"] if self.settings.mode == "history" else one["id"] for one in found]


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", ["history", "current"])
class TestIceberg(LettersContract):
    sink = "iceberg"

    @pytest.fixture
    def stores(self, tmp_path: Path, mode: str, spark: SparkSession) -> Callable[[], Lettered]:
        numbers = count()

        def new() -> Lettered:
            section = {"path": str(tmp_path / str(next(numbers))), "mode": mode, "buckets": 2}
            return Lettered(IcebergSinkSettings.model_validate(section), spark)

        return new
