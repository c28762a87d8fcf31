"""A sink that is deleted, or restored from a backup older than the checkpoint: the stream stops, and says why."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tailrace_schemas.errors import DataLossError
from tests.integration.faults.followed import Followed
from tests.support.waiting import until


@pytest.mark.promise("stream.restored-sink")
def test_a_database_restored_from_an_older_backup_stops_the_stream_until_losses_stop_nothing(
    followed: Followed, tmp_path: Path
) -> None:
    shutil.copytree(tmp_path, backup := tmp_path / "backup", ignore=shutil.ignore_patterns("checkpoint"))
    before = followed.ends()
    followed.insert(*range(10, 20))
    followed.drain()
    after = followed.ends()
    followed.delete()
    shutil.copytree(backup, tmp_path, dirs_exist_ok=True)
    followed.insert(20)
    with pytest.raises(DataLossError, match="up to batch 0 only") as raised:
        followed.drain()
    for number, (first, end) in enumerate(zip(before, after, strict=True)):
        assert f"partition {number} offsets {first} to {end - 1}" in str(raised.value)
    followed.drain(stops=False)
    assert followed.ids() == {*range(10), 20}
    followed.insert(21)
    followed.drain()
    assert followed.ids() == {*range(10), 20, 21}


@pytest.mark.promise("stream.restored-sink")
def test_a_database_deleted_under_a_running_stream_stops_it(followed: Followed) -> None:
    with followed.running() as errors:
        followed.insert(10)
        followed.until(set(range(11)))
        followed.delete()
        followed.insert(11)
        until(lambda: bool(errors), "the stream's error", 120, state=followed.ids)
    assert isinstance(errors[0], DataLossError), errors
    assert "the sink has nothing of this stream" in str(errors[0])
