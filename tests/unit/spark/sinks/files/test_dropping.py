"""Drops of a files sink in a directory: held to their contract."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from tests.unit.spark.sinks.files.dropping_contract import DroppingContract
from tests.unit.spark.sinks.files.stores import Stored, local


@pytest.mark.promise("subscription.target-dropped")
@pytest.mark.slow
class TestInADirectory(DroppingContract):
    @pytest.fixture(params=["parquet", "jsonl"])
    def stores(self, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Stored]:
        numbers = count()
        return lambda: local(tmp_path / str(next(numbers)), format=request.param)


@pytest.mark.slow
@pytest.mark.promise("subscription.target-dropped")
def test_the_same_records_can_be_written_anew(tmp_path: Path) -> None:
    DroppingContract().test_files_go_and_those_of_others_stay(lambda: local(tmp_path), packed=False)
