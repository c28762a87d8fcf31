"""One stream per checkpoint: the second one is refused with the first one's name, until that ends."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace_schemas.errors import FencedError
from tailrace_spark.job.checkpoint_lock import CheckpointLock, lock_checkpoint, require_unlocked

HOLDER = """
import sys, time
from pathlib import Path
from tailrace_spark.job.checkpoint_lock import lock_checkpoint
lock = lock_checkpoint(Path(sys.argv[1]), "c", now=0.0)
print("locked", flush=True)
sys.stdin.read()
"""


def lock(folder: Path) -> CheckpointLock:
    made = lock_checkpoint(folder, "c", now=1.5, wait=lambda _: None)
    assert made is not None
    return made


def test_a_second_stream_is_refused_with_the_name_of_the_first(tmp_path: Path) -> None:
    folder = tmp_path / "c" / "tailrace"
    require_unlocked(folder, "c")
    with lock(folder):
        started = rf"\(started 1970-01-01T00:00:01\+00:00 on .*pid {os.getpid()}\)"
        words = rf"^stream\.checkpoint c: another stream runs with it {started}"
        with pytest.raises(FencedError, match=words):
            lock(folder)
        with pytest.raises(FencedError, match=words):
            require_unlocked(folder, "c")
    require_unlocked(folder, "c")
    lock(folder).close()


def test_a_look_at_the_lock_makes_and_keeps_nothing(tmp_path: Path) -> None:
    require_unlocked(tmp_path / "none", "c")
    assert list(tmp_path.iterdir()) == []
    require_unlocked(tmp_path, "c")
    assert list(tmp_path.iterdir()) == []
    lock(tmp_path).close()


@pytest.mark.promise("stream.one-per-checkpoint")
@pytest.mark.slow
def test_a_process_that_is_killed_leaves_no_lock(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(FencedError, match=f"pid {holder.pid}"):
            require_unlocked(tmp_path, "c")
        holder.kill()
    lock(tmp_path).close()


def test_a_lock_without_a_readable_mark_is_refused_too(tmp_path: Path) -> None:
    (tmp_path / "owner.json").write_text("{")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(FencedError, match=r"another stream runs with it\. Two streams"):
        lock(tmp_path)
    os.close(descriptor)


def test_a_folder_that_nobody_may_write_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "owner.json").mkdir()  # what a rename cannot replace
    assert lock_checkpoint(tmp_path, "c", now=0.0, wait=lambda _: None) is None
    assert "stream.checkpoint c cannot be locked" in caplog.text
