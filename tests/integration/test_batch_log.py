"""What a batch used is noted once, and holds when the batch comes again, whatever is published by then."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from tailrace_schemas.generation_records import PublishedGeneration
from tailrace_spark.job.checkpoint_files import Folder, HadoopFiles, LocalFiles, files_in
from tailrace_spark.job.generation_log import KEPT_BATCHES, BatchLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _published(number: int) -> PublishedGeneration:
    return PublishedGeneration(
        uuid=UUID(int=number), timestamp=number, predecessor=None, offset=0, appended=0, packed=b""
    )


@pytest.fixture(params=["local", "hadoop"])
def files(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Folder:
    """A folder that is not there yet, on either kind of file system."""
    folder = tmp_path / "tailrace"
    return LocalFiles(folder) if request.param == "local" else HadoopFiles(spark, str(folder))


A, B, C = map(_published, (1, 2, 3))


@pytest.mark.promise("stream.repeated-batch")
def test_what_was_known_then_is_used_again(files: Folder, caplog: pytest.LogCaptureFixture) -> None:
    assert BatchLog(files).used(7, [A, B], 20) == ([A, B], 20)
    assert BatchLog(files).used(7, [A, B, C], 90) == ([A, B], 20)
    assert BatchLog(files).used(8, [A, B, C], 90) == ([A, B, C], 90)
    assert not caplog.records
    # Of a ring that is long gone a generation may have gone too: newer ones stay out all the same.
    assert BatchLog(files).used(7, [B, C], 95) == ([B], 20)
    assert "batch 7 is a retry: 1 of the generations it used were removed" in caplog.text
    assert BatchLog(files).used(7, [C], 99) == ([C], 99)
    assert BatchLog(files).used(7, [A, B, C], 120) == ([C], 99)


def test_a_note_that_was_cut_off_is_none(files: Folder, tmp_path: Path) -> None:
    log = BatchLog(files)
    log.used(7, [A], 20)
    file = tmp_path / "tailrace" / "7.json"
    whole = file.read_bytes()
    for end in (0, 1, len(whole) - 1):
        file.write_bytes(whole[:end])
        (tmp_path / "tailrace" / ".7.json.crc").unlink(missing_ok=True)
        assert log.used(7, [B], 30 + end) == ([B], 30 + end)


def test_old_notes_go(files: Folder, tmp_path: Path) -> None:
    log = BatchLog(files)
    for batch in (0, 1, KEPT_BATCHES):
        log.used(batch, [A], 20)
    assert sorted(file.name for file in (tmp_path / "tailrace").glob("*.json")) == ["1.json", f"{KEPT_BATCHES}.json"]


def test_a_path_is_this_machines_without_hadoop(spark: SparkSession, tmp_path: Path) -> None:
    for folder in (f"{tmp_path}/a b", f"file://{tmp_path}/a%20b"):
        found = files_in(spark, folder)
        assert isinstance(found, LocalFiles)
        found.write("note", folder)
        assert (tmp_path / "a b" / "note").read_text() == folder
