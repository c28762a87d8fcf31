"""Delta tables that are dropped: in a directory, and on S3; and a drop that ends between any two files."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import cast

import pytest
from pyarrow import fs

from tailrace_spark.sinks.delta.store import DeltaStore
from tailrace_spark.sinks.lake.local_root import local_files, remove_files
from tests import s3
from tests.unit.spark.sinks.change_log_contract import PLAIN
from tests.unit.spark.sinks.delta.stores import DeltaLake, section
from tests.unit.spark.sinks.delta.stores import section_on_s3 as on_s3
from tests.unit.spark.sinks.lake.dropping_contract import DroppingContract, Lake, drop, require_tables, write


@pytest.mark.slow
class TestDeltaDropping(DroppingContract):
    @pytest.fixture
    def lake(self, tmp_path: Path) -> Lake:
        return DeltaLake(section(tmp_path))

    def test_no_file_is_left(self, tmp_path: Path) -> None:
        store = DeltaStore(section(tmp_path))
        write(store, "history", PLAIN)
        drop(store, "history", PLAIN)
        assert [path.name for path in tmp_path.iterdir()] == ["tailrace.dead-letters"]


@pytest.mark.long
class TestDeltaDroppingOnS3(DroppingContract):
    @pytest.fixture
    def lake(self) -> Lake:
        return DeltaLake(on_s3(f"s3://{s3.new_bucket()}/a lake"))


class Ending:
    """Files of a table, in a process that ends when so many were removed."""

    def __init__(self, root: Path, left: int) -> None:
        self._files = local_files(str(root))
        self._left = left

    def get_file_info(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        return list(self._files.get_file_info(selector))

    def delete_file(self, path: str) -> None:
        if self._left == 0:
            raise OSError("the process is dead")
        self._left -= 1
        self._files.delete_file(path)


@pytest.mark.slow
@pytest.mark.promise("subscription.target-dropped")
def test_between_any_two_files_it_is_a_table_that_is_dropped_again(tmp_path: Path) -> None:
    """Of its log the newest file goes first: up to the last one the table can be opened."""
    for number in count():
        store, name = DeltaStore(section(tmp_path / str(number))), "shop.plain"
        for topic in ("a", "b"):
            write(store, "history", PLAIN, topic=topic)
        files = [path for path in (tmp_path / str(number) / name).rglob("*") if path.is_file()]
        assert len(files) > 3
        if number == len(files):
            return
        with pytest.raises(OSError, match="the process is dead"):
            remove_files(cast("fs.FileSystem", Ending(tmp_path / str(number) / name, number)), last="_delta_log")
        assert drop(store, "history", PLAIN) == [name]
        require_tables(store, "history")
