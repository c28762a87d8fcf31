"""A checkpoint is one job's: what is written in it, what is refused, with what advice."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tailrace_schemas.errors import FencedError, SettingsError
from tailrace_spark.job.checkpoint import FORMAT, Job, lock_checkpoint, read_note, require_own
from tailrace_spark.job.checkpoint_files import HadoopFiles, LocalFiles, files_in, local_files
from tailrace_spark.job.runner import stream_id

JOB = Job(prefix="p", sink="sqlite:////x.db")
HOLDER = """
import sys, time
from pathlib import Path
from tailrace_spark.job.checkpoint import lock_checkpoint
lock = lock_checkpoint(Path(sys.argv[1]), "c", now=0.0)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    """The folder beside Spark's own, not there yet."""
    return LocalFiles(tmp_path / "tailrace")


def noted(files: LocalFiles) -> dict[str, object]:
    text = files.read("stream.json")
    assert text is not None
    found: dict[str, object] = json.loads(text)
    return found


def test_the_first_job_has_it(files: LocalFiles) -> None:
    require_own(files, "c", JOB)
    assert noted(files) == {"format": FORMAT, **asdict(JOB)}
    require_own(files, "c", JOB)
    require_own(files, "c", Job(prefix="p"))


@pytest.mark.promise("stream.another-checkpoint")
@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"format": FORMAT + 1}, r"stream\.checkpoint c was written by another version .*\(format 2; .* Install that"),
        ({"format": FORMAT - 1}, r"stream\.checkpoint c was written by another version .*\(format 0; .* Install that"),
        ({"prefix": "q"}, "of the topics of q, not of p: set another stream.checkpoint"),
        ({"sink": "sqlite:////y.db"}, "of the sink sqlite:////y.db, not of sqlite:////x.db.* remove tailrace/stream"),
        ({"one_copy": True}, "written with stream.one_copy_seconds"),
        ({"transactions": True}, "written with transactions of the sink"),
    ],
)
def test_another_jobs_is_refused_and_left_alone(files: LocalFiles, other: dict[str, object], words: str) -> None:
    require_own(files, "c", JOB)
    text = json.dumps({**noted(files), **other})
    files.write("stream.json", text)
    with pytest.raises(SettingsError, match=words):
        require_own(files, "c", JOB)
    assert files.read("stream.json") == text


@pytest.mark.parametrize("text", ["", "{", "[]", '{"prefix": "p"}', '{"format": 1}'])
def test_a_damaged_note_is_named(files: LocalFiles, text: str) -> None:
    files.write("stream.json", text)
    with pytest.raises(SettingsError, match=r"tailrace/stream\.json in it is damaged"):
        require_own(files, "c", JOB)


def lock(folder: Path) -> ExitStack:
    made = lock_checkpoint(folder, "c", now=1.5, wait=lambda _: None)
    assert made is not None
    return made


@pytest.mark.promise("stream.one-per-checkpoint")
def test_a_second_stream_is_refused_with_the_name_of_the_first(tmp_path: Path) -> None:
    folder = tmp_path / "c" / "tailrace"
    with lock(folder):
        started = rf"\(started 1970-01-01T00:00:01\+00:00 on .*pid {os.getpid()}\)"
        with pytest.raises(
            FencedError, match=rf"^stream\.checkpoint c: another stream runs with it {started}"
        ) as raised:
            lock(folder)
        assert raised.value.exit_code == 5
    lock(folder).close()


@pytest.mark.promise("stream.one-per-checkpoint")
@pytest.mark.slow
def test_a_process_that_is_killed_leaves_no_lock(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(FencedError, match=f"pid {holder.pid}"):
            lock(tmp_path)
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


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_note_that_was_cut_off_is_named_with_what_to_do(files: LocalFiles, text: str) -> None:
    assert read_note(files, "tasks.json") is None
    files.write("tasks.json", text)
    with pytest.raises(SettingsError, match=r"tailrace/tasks\.json in stream\.checkpoint is damaged .* restore that"):
        stream_id(files)


@pytest.mark.parametrize(
    ("folder", "path"),
    [("/data/50%25/c", "/data/50%25/c"), ("file:///data/a b/c", "/data/a b/c"), ("/data/c", "/data/c")],
)
def test_a_checkpoint_is_one_folder_for_streams_and_commands(
    monkeypatch: pytest.MonkeyPatch, folder: str, path: str
) -> None:
    """And for Spark, which takes a path as it is written."""
    monkeypatch.setattr(HadoopFiles, "__init__", lambda *_: None)
    monkeypatch.setattr(HadoopFiles, "local", True)
    spark: Any = None
    for files in (files_in(spark, folder), local_files(folder, {}, {})):
        assert isinstance(files, LocalFiles)
        assert files.folder == Path(path)
