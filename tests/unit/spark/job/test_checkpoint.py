"""A checkpoint is one job's: what is written in it, what is read of older ones, what is refused, with what advice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailrace_common.sections.stream import StreamSettings
from tailrace_schemas.errors import SettingsError
from tailrace_spark.job.checkpoint import EARLIER_DEFAULT, FORMAT, Job, chosen_checkpoint, require_own, store_of
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
    assert noted(files) == {"format": FORMAT, "prefix": "p", "sink": "sqlite:////x.db", "one_copy": False}
    require_own(files, "c", JOB)
    require_own(files, "c", Job(prefix="p"))


def test_a_checkpoint_of_before_there_was_a_note_is_taken(files: LocalFiles) -> None:
    files.write("7.json", "{}")
    require_own(files, "c", JOB)
    assert noted(files)["format"] == FORMAT


def test_an_older_format_is_noted_anew(files: LocalFiles) -> None:
    files.write("stream.json", json.dumps({"format": 0, "prefix": "p"}))
    require_own(files, "c", JOB)
    assert noted(files)["format"] == FORMAT


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"format": FORMAT + 1}, r"stream\.checkpoint c was written by a newer Tailrace \(format 2; .* Install that"),
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


@pytest.mark.parametrize("text", ["", "{", "[]", '{"prefix": "p"}', '{"format": "1"}'])
def test_a_damaged_note_is_named(files: LocalFiles, text: str) -> None:
    files.write("stream.json", text)
    with pytest.raises(SettingsError, match=r"tailrace/stream\.json in it is damaged"):
        require_own(files, "c", JOB)


# -- which directory it is in, where the settings do not say

OURS = "tailrace-checkpoint-local"


class Folders:
    """Folders below one directory, by relative paths."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __call__(self, folder: str) -> LocalFiles:
        return LocalFiles(self.root / folder)

    def chosen(self, settings: StreamSettings | None = None, *, only_sink: bool = True) -> str:
        store = store_of("sqlite:////x.db")
        return chosen_checkpoint(settings or StreamSettings(), "local", store, self, only_sink=only_sink)


def test_by_default_a_checkpoint_has_the_sinks_name(tmp_path: Path) -> None:
    assert Folders(tmp_path).chosen() == OURS


def test_the_settings_name_it(tmp_path: Path) -> None:
    assert Folders(tmp_path).chosen(StreamSettings(checkpoint="s3://b/{sink}/x")) == "s3://b/local/x"


@pytest.mark.promise("settings.earlier-checkpoint")
def test_a_checkpoint_of_the_earlier_default_is_gone_on_with(tmp_path: Path) -> None:
    """A new one would read the topics from their beginning, in silence."""
    folders = Folders(tmp_path)
    folders(EARLIER_DEFAULT).write("metadata", "{}")
    require_own(folders(f"{EARLIER_DEFAULT}/tailrace"), "c", Job(prefix="p", sink="sqlite:////x.db"))
    assert folders.chosen() == folders.chosen(only_sink=False) == EARLIER_DEFAULT
    folders(OURS).write("metadata", "{}")
    assert folders.chosen() == OURS


def test_another_sinks_checkpoint_of_the_earlier_default_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folders = Folders(tmp_path)
    folders(EARLIER_DEFAULT).write("metadata", "{}")
    require_own(folders(f"{EARLIER_DEFAULT}/tailrace"), "c", Job(prefix="p", sink="sqlite:////y.db"))
    assert folders.chosen() == OURS
    assert (
        "tailrace-checkpoint belongs to sink sqlite:////y.db; this stream uses tailrace-checkpoint-local" in caplog.text
    )


@pytest.mark.promise("settings.earlier-checkpoint")
def test_an_earlier_checkpoint_that_says_nothing_is_the_only_sinks(tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    folders(EARLIER_DEFAULT).write("metadata", "{}")
    assert folders.chosen() == EARLIER_DEFAULT
    with pytest.raises(
        SettingsError, match="If it is the sink local, rename it to tailrace-checkpoint-local; else set"
    ):
        folders.chosen(only_sink=False)
    assert folders.chosen(StreamSettings(checkpoint=OURS), only_sink=False) == OURS
