"""`tailrace verify`: whole directories, what is damaged in them, and what Cassandra is still writing."""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tailrace.cli.main import complete
from tailrace.cli.segments.verify import verify
from tests.unit.capture.segments import SegmentWriter
from tests.unit.commitlog.recorded import KEY, KINDS, read_until_damage, recorded, sections_of

LZ4 = "5.0.1/lz4"
NAME = "CommitLog-8-1795246988180.log"


def run(
    capsys: pytest.CaptureFixture[str], *places: Path, jobs: int = 1, key: str | None = None
) -> tuple[list[dict[str, Any]], str, int]:
    """(JSON lines, words, exit code) of the command's own function."""
    code = 0
    try:
        verify(list(places), jobs=jobs, key=key)
    except typer.Exit as end:
        code = end.exit_code
    out, err = capsys.readouterr()
    return [json.loads(line) for line in out.splitlines()], err, code


@pytest.fixture
def lz4(tmp_path: Path) -> Path:
    """A directory with one compressed segment."""
    recorded(LZ4).unpack(tmp_path)
    return tmp_path


def index(directory: Path, text: str, name: str = NAME) -> None:
    (directory / name.replace(".log", "_cdc.idx")).write_text(text)


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_whole_directory_in_order_of_ids(jobs: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segments = [data for kind in KINDS for data in recorded(kind).segments.items()]
    for name, data in segments:
        (tmp_path / name).write_bytes(data)
    (tmp_path / "note.txt").write_text("not a segment")
    rows, words, code = run(capsys, tmp_path, jobs=jobs, key=KEY.hex())
    found = [int(row["file"].removesuffix(".log").rpartition("-")[2]) for row in rows]
    assert found == sorted(found)
    assert len(rows) == len(segments)
    for row in rows:
        data = (tmp_path / row["file"]).read_bytes()
        whole = read_until_damage(data)[0]
        assert (row["status"], row["reason"], row["size"]) == ("ok", "", len(data))
        assert (row["frames"], row["end"]) == (len(whole), whole[-1].end)
        assert row["sections"] == len(sections_of(data))
    assert (words, code) == ("", 0)


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_cannot_be_read_is_a_line_each(jobs: int, lz4: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A directory, a pipe, a link in a circle, an index that is no file; the others are verified."""
    for number in (1, 2, 3, 4):
        (lz4 / f"CommitLog-7-{number}_cdc.idx").write_text("100\nCOMPLETED")
    (lz4 / "CommitLog-7-1.log").mkdir()
    os.mkfifo(lz4 / "CommitLog-7-2.log")
    (lz4 / "CommitLog-7-3.log").symlink_to(lz4 / "CommitLog-7-3.log")
    (lz4 / "CommitLog-7-4.log").write_bytes(gzip.compress(b"not a segment"))
    (lz4 / NAME.replace(".log", "_cdc.idx")).mkdir()
    rows, words, code = run(capsys, lz4, jobs=jobs)
    assert {row["file"]: (row["status"], row["reason"]) for row in rows} == {
        "CommitLog-7-1.log": ("not read", "cannot be read: not a file"),
        "CommitLog-7-2.log": ("not read", "cannot be read: not a file"),
        "CommitLog-7-3.log": ("not read", "cannot be read: Too many levels of symbolic links"),
        "CommitLog-7-4.log": ("not read", "compressed by gzip: gunzip it first"),
        NAME: ("not read", f"{NAME.replace('.log', '_cdc.idx')}: cannot be read: Is a directory"),
    }
    assert (words, code) == ("", 3)


@pytest.mark.slow
def test_a_damaged_one_does_not_stop_the_others(lz4: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rollover = recorded("4.0-beta4/rollover-uncompressed")
    rollover.unpack(lz4)
    whole = (lz4 / NAME).read_bytes()
    third = sections_of(whole)[2]
    for at in range(third.start.marker, third.end.marker):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        (lz4 / NAME).write_bytes(damaged)
        rows, _, code = run(capsys, lz4 / NAME)
        if rows[0]["status"] == "ok":
            # Not every bit of a compressed block carries meaning.
            assert code == 0
            continue
        assert rows[0]["status"] == "damaged"
        assert rows[0]["end"] <= third.end.logical
        assert rows[0]["reason"]
        assert code == 3
    damaged = bytearray(whole)
    damaged[third.end.marker - 1] ^= 0xFF
    (lz4 / NAME).write_bytes(damaged)
    rows, _, code = run(capsys, lz4)
    assert [row["status"] for row in rows] == ["ok", "ok", "damaged"]
    assert code == 3


def test_what_the_index_released_must_be_there(lz4: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pages that were lost read as zeros: without the index the segment would just seem to end."""
    data = (lz4 / NAME).read_bytes()
    third = sections_of(data)[2]
    (lz4 / NAME).write_bytes(data[: third.start.marker] + bytes(len(data) - third.start.marker))
    assert run(capsys, lz4)[0][0]["status"] == "ok"
    for text in (str(third.start.logical + 1), f"{third.start.logical + 1}\nCOMPLETED"):
        index(lz4, text)
        (row,), _, code = run(capsys, lz4)
        assert row["status"] == "damaged"
        assert f"the index released {third.start.logical + 1}, the segment ends here" in row["reason"]
        assert code == 3
    for text in ("", str(third.start.logical), f"{third.start.logical}\nCOMPLETED", f"{len(data)}\nCOMPLETED"):
        # The last is what a restart writes: the file's length.
        index(lz4, text)
        assert run(capsys, lz4)[0][0]["status"] == "ok"


@pytest.mark.slow
def test_what_is_being_written_may_end_anywhere(lz4: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = (lz4 / NAME).read_bytes()
    third = sections_of(data)[2]
    for size in range(third.start.marker + 8, third.end.marker):
        (lz4 / NAME).write_bytes(data[:size])
        index(lz4, str(third.start.logical))
        (row,), _, code = run(capsys, lz4)
        assert (row["status"], row["end"], code) == ("being written", third.start.logical, 0)
        index(lz4, f"{third.end.logical}\nCOMPLETED")
        (row,), _, code = run(capsys, lz4)
        assert (row["status"], code) == ("damaged", 3)


def test_a_segment_that_has_no_header_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content in (b"", bytes(4096), recorded(LZ4).segment[:10]):
        (tmp_path / NAME).write_bytes(content)
        (row,), _, code = run(capsys, tmp_path)
        assert (row["status"], row["frames"], code) == ("being written", 0, 0)
    index(tmp_path, "50")
    assert run(capsys, tmp_path)[0][0]["status"] == "damaged"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ((10).to_bytes(4, "big") + bytes(60), "segment version 10 is newer"),
        (b"#!/bin/sh\necho no segment\n", "this is no segment"),
    ],
)
def test_what_cannot_be_read_is_told(
    content: bytes, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / NAME).write_bytes(content)
    (row,), _, code = run(capsys, tmp_path)
    assert row["status"] == "not read"
    assert reason in row["reason"]
    assert code == 3


def test_encrypted_segments_without_their_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded("4.0-beta4/encrypted").unpack(tmp_path)
    (row,), _, code = run(capsys, tmp_path)
    assert (row["status"], code) == ("not read", 3)
    assert "no key for alias 'testing:1'" in row["reason"]
    (row,), _, code = run(capsys, tmp_path, key=bytes(16).hex())
    assert (row["status"], row["sections"], code) == ("not read", 0, 3)
    assert "a wrong key, or damage" in row["reason"]


def test_a_file_that_goes_before_it_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (row,), _, code = run(capsys, tmp_path / "CommitLog-7-1.log")
    assert (row["status"], row["reason"], code) == ("gone", "deleted meanwhile", 0)


def test_an_empty_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, tmp_path) == ([], "0 segments: nothing to verify\n", 0)


def test_a_live_segment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segment = SegmentWriter(tmp_path, 7)
    ends = segment.write(b"a" * 10, b"b" * 20)
    segment.sync()
    segment.write(b"c" * 30)
    (row,), _, code = run(capsys, segment.raw)
    assert (row["status"], row["frames"], code) == ("ok", 3, 0)
    segment.patch(segment.at - 1, b"?")
    (row,), _, code = run(capsys, segment.raw)
    assert (row["status"], row["end"], code) == ("being written", ends[-1], 0)


def test_a_person_gets_a_bar_and_what_is_wrong(
    lz4: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded("4.0-beta4/encrypted").unpack(lz4)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "140")
    with pytest.raises(typer.Exit):
        verify([lz4], jobs=1)
    out, err = capsys.readouterr()
    assert "there is no key for alias 'testing:1'" in out
    assert NAME not in out
    assert "2 segments: 1 ok, 1 not read" in err
    assert "verifying" in err


@pytest.mark.slow
def test_the_command_in_processes_of_its_own(tmp_path: Path) -> None:
    recorded("4.0-beta4/encrypted").unpack(tmp_path)
    recorded("3.11.17/encrypted").unpack(tmp_path)
    answer = CliRunner(env={"TAILRACE_SEGMENT_KEY": KEY.hex()}).invoke(
        complete(), ["verify", "--jobs", "2", str(tmp_path)]
    )
    assert answer.exit_code == 0, answer.output
    assert [json.loads(line)["status"] for line in answer.stdout.splitlines()] == ["ok", "ok"]
    assert CliRunner().invoke(complete(), ["verify", "--jobs", "0", str(tmp_path)]).exit_code == 2
