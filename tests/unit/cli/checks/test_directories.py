"""`tailrace check` reads a segment, and measures the spool's disk."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from tailrace.cli.check import check_code
from tailrace.cli.checks.directories import check_segment, check_spool_disk
from tailrace_common import build
from tailrace_common.settings import AgentSettings, load_settings
from tests.unit.capture.segments import released, written


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.fixture
def agent(tmp_path: Path) -> AgentSettings:
    (tmp_path / "cdc_raw").mkdir()
    return AgentSettings(
        cdc_raw_directory=tmp_path / "cdc_raw", spool_directory=tmp_path / "spool", spool_bytes=1 << 20
    )


def test_no_segment_is_no_fault(agent: AgentSettings) -> None:
    (row,) = check_segment(agent)
    assert row.ok
    assert "cdc = true" in row.advice


@pytest.mark.promise("commands.check")
def test_the_newest_segment_with_data_is_read(agent: AgentSettings, tmp_path: Path) -> None:
    for id in (5, 6):
        segment = written(tmp_path, id, b"a" * 100)
        segment.sync(completed=id == 5)
    times = count()
    (row,) = check_segment(agent, lambda: float(next(times)))
    assert row.ok, row
    assert row.detail.startswith("CommitLog-7-6.log: 1 mutations")


def test_a_segment_that_is_damaged(agent: AgentSettings, tmp_path: Path) -> None:
    released(tmp_path, 5, b"a" * 100, completed=True)
    (path,) = (tmp_path / "cdc_raw").glob("*.log")
    data = bytearray(path.read_bytes())
    data[data.index(b"a" * 100) + 50] ^= 1
    path.write_bytes(data)
    (row,) = check_segment(agent)
    assert not row.ok
    assert f"tailrace verify {path}" in row.advice


@pytest.mark.promise("commands.check")
def test_the_spools_disk_is_measured_and_left_as_it_was(agent: AgentSettings, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    (row,) = check_spool_disk(agent, iter([0.0, 0.1, 0.11]).__next__)
    assert row.ok
    assert row.advice == ""
    assert row.detail.startswith(f"{tmp_path}: 80 MiB/s, fsync 10 ms; ")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_slow_disk_is_named(agent: AgentSettings) -> None:
    for times in ([0.0, 1.0, 1.01], [0.0, 0.1, 0.9]):
        (row,) = check_spool_disk(agent, iter(times).__next__)
        assert row.ok
        assert "the disk is slow" in row.advice


def test_a_disk_without_room(agent: AgentSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1 << 40, 1 << 40, 1 << 20))
    (row,) = check_spool_disk(agent)
    assert not row.ok
    larger = agent.model_copy(update={"spool_bytes": 1 << 40})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1 << 40, 0, 1 << 39))
    (row,) = check_spool_disk(larger)
    assert row.ok
    assert "agent.spool_bytes" in row.advice


def test_nothing_is_measured_that_is_not_used(agent: AgentSettings) -> None:
    assert list(check_spool_disk(agent.model_copy(update={"on_pressure": "hold"}))) == []


@pytest.mark.parametrize(("sources", "words"), [({}, "pure Python"), ({"tailrace_schemas": ""}, "")])
def test_pure_python_is_named(sources: dict[str, str], words: str) -> None:
    (row,) = check_code(load_settings(None, {}), sources)
    assert row.ok
    assert build.version() in row.detail
    assert (words in row.advice, bool(row.advice)) == (True, bool(words))
