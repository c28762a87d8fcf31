"""`tailrace inspect`: descriptor, sections and counts of recorded segments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from tailrace.cli.segments.inspect import Detail, inspect
from tests.unit.commitlog.recorded import KEY, KINDS, read_until_damage, recorded, sections_of


def run(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[list[dict[str, Any]], str, int]:
    """(JSON lines, words, exit code) of the command's own function."""
    code = 0
    try:
        inspect(*arguments)
    except typer.Exit as end:
        code = end.exit_code
    out, err = capsys.readouterr()
    return [json.loads(line) for line in out.splitlines()], err, code


def test_a_compressed_segment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segments, _ = recorded("5.0.1/lz4").unpack(tmp_path)
    assert run(capsys, segments) == (
        [
            {
                "file": "CommitLog-8-1795246988180.log",
                "size": 15982,
                "version": 8,
                "id": 1795246988180,
                "checksum": "b954420b",
                "compression": "LZ4Compressor",
                "encryption": None,
                "end": 47337,
                "sections": 7,
                "frames": 110,
                "payload": 45886,
                "damage": None,
            }
        ],
        "",
        0,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_sections_and_tables_add_up(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segments, _ = recorded(kind).unpack(tmp_path)
    for path in segments:
        data = path.read_bytes()
        (whole,), _, code = run(capsys, [path], Detail.SEGMENT, KEY.hex())
        by_section, _, _ = run(capsys, [path], Detail.SECTION, KEY.hex())
        by_table, _, _ = run(capsys, [path], Detail.TABLE, KEY.hex())
        assert code == 0
        assert whole["end"] == read_until_damage(data)[0][-1].end
        assert whole["sections"] == len(by_section) == len(sections_of(data))
        assert whole["frames"] == sum(row["frames"] for row in by_section)
        assert whole["frames"] == sum(row["mutations"] for row in by_table)
        assert whole["payload"] == sum(row["payload"] for row in by_table)


@pytest.mark.parametrize("by", list(Detail))
def test_damage_is_shown_with_what_is_before_it(by: Detail, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = recorded("5.0.1/directio")
    (path,), _ = folder.unpack(tmp_path)
    path.write_bytes(folder.segment[:20_000])
    rows, words, code = run(capsys, [path], by)
    assert rows
    assert "the file at 20000" in words
    assert code == 3
    if by is Detail.SEGMENT:
        assert "the file at 20000" in rows[0]["damage"]
        assert 0 < rows[0]["frames"] < 110


def test_encrypted_segments_without_their_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segments, _ = recorded("4.0-beta4/encrypted").unpack(tmp_path)
    (row,), words, code = run(capsys, segments)
    assert row["encryption"] == "AES/CBC/PKCS5Padding"
    assert "there is no key for alias 'testing:1'" in words
    assert code == 3


def test_a_person_gets_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    segments, _ = recorded("5.0.1/lz4").unpack(tmp_path)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    inspect(segments)
    shown = capsys.readouterr().out
    assert "LZ4Compressor" in shown
    assert "CommitLog-8-1795246988180.log" in shown
    assert "encryption" not in shown
