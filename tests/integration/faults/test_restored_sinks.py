"""A sink that is deleted, or restored from a backup older than the checkpoint: the stream stops, and says why."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tailrace_schemas.errors import DataLossError
from tests.integration.faults.followed import ROWS, Followed, Running
from tests.support.waiting import until


@pytest.mark.promise("stream.restored-sink")
def test_a_database_restored_from_an_older_backup_stops_the_stream_until_losses_stop_nothing(
    followed: Followed, tmp_path: Path
) -> None:
    shutil.copytree(tmp_path, backup := tmp_path / "backup", ignore=shutil.ignore_patterns("checkpoint"))
    before = followed.ends(ROWS)
    followed.insert(ROWS, *range(10, 20))
    followed.drain()
    after = followed.ends(ROWS)
    followed.delete_file()
    shutil.copytree(backup, tmp_path, dirs_exist_ok=True)
    followed.insert(ROWS, 20)
    with pytest.raises(DataLossError, match="up to batch 0 only") as raised:
        followed.drain()
    for number, (first, end) in enumerate(zip(before, after, strict=True)):
        assert f"partition {number} offsets {first} to {end - 1}" in str(raised.value)
    followed.drain(stops=False)
    assert followed.ids(ROWS) == {*range(10), 20}
    followed.insert(ROWS, 21)
    followed.drain()
    assert followed.ids(ROWS) == {*range(10), 20, 21}


@pytest.mark.promise("stream.restored-sink")
def test_a_database_deleted_under_a_running_stream_stops_it(followed: Followed) -> None:
    with pytest.raises(DataLossError, match="the sink has nothing of this stream"), followed.running() as running:
        delete_under(running, followed)


def delete_under(running: Running, followed: Followed) -> None:
    followed.insert(ROWS, 10)
    running.until_shown(ROWS, set(range(11)))
    followed.delete_file()
    followed.insert(ROWS, 11)
    until(lambda: not running.thread.is_alive(), "the stream's end")
