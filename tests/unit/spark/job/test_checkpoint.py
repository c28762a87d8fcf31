"""A checkpoint is one job's: what is written in it, what is refused, with what advice."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tailrace_schemas.errors import SettingsError
from tailrace_spark.job.checkpoint import FORMAT, Job, require_own
from tailrace_spark.job.checkpoint_files import LocalFiles

JOB = Job(prefix="p", sink="sqlite:////x.db")


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
