"""Checkpoints of earlier claims go, on either kind of file system."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace_server.worker.readings import new_checkpoint
from tailrace_server.worker.run import remove_earlier
from tailrace_spark.job.checkpoint_files import Folder, HadoopFiles, LocalFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(params=["local", "hadoop"])
def checkpoints(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Folder:
    """Those of one subscription."""
    return LocalFiles(tmp_path) if request.param == "local" else HadoopFiles(spark, str(tmp_path))


def test_those_of_earlier_claims_are_removed(checkpoints: Folder, tmp_path: Path) -> None:
    stays = new_checkpoint("10")
    for name in ("2", "9-1", new_checkpoint("9"), stays, "11", "notes"):
        (tmp_path / name / "offsets").mkdir(parents=True)
        (tmp_path / name / "offsets" / "0").write_text("v1")
    remove_earlier(checkpoints, 10)
    remove_earlier(checkpoints, 10)
    assert sorted(folder.name for folder in tmp_path.iterdir()) == sorted([stays, "11", "notes"])


def test_without_any_there_is_nothing_to_remove(spark: SparkSession, tmp_path: Path) -> None:
    for checkpoints in (LocalFiles(tmp_path / "none"), HadoopFiles(spark, str(tmp_path / "none"))):
        remove_earlier(checkpoints, 10)
