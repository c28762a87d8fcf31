"""Iceberg tables that are dropped, of the catalog of a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace_spark.sinks.iceberg.settings import IcebergSinkSettings
from tests.unit.spark.sinks.change_log_contract import PLAIN
from tests.unit.spark.sinks.iceberg.stores import Lake as IcebergLake
from tests.unit.spark.sinks.lake.dropping_contract import DroppingContract, Lake, drop, write


def lake_in(root: Path) -> IcebergLake:
    return IcebergLake(IcebergSinkSettings.model_validate({"path": str(root)}))


@pytest.mark.slow
class TestIcebergDropping(DroppingContract):
    @pytest.fixture
    def lake(self, tmp_path: Path) -> Lake:
        return lake_in(tmp_path)

    def test_no_file_is_left(self, tmp_path: Path) -> None:
        store = lake_in(tmp_path).store
        write(store, "history", PLAIN)
        assert any(path.is_file() for path in tmp_path.rglob("shop/plain/**/*"))
        drop(store, "history", PLAIN)
        assert [path for path in tmp_path.rglob("shop/plain/**/*") if path.is_file()] == []
