"""The agent's care for cdc_raw, as the settings say."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tailrace.assembly.cdc_raw import Care, exit_code, release_of
from tailrace.assembly.node import NodeSettings
from tailrace.commitlog.blocks import NO_KEYS
from tailrace.ops.health import HealthBoard
from tailrace.retention.release import DELETED, KEPT
from tailrace.state import Resume
from tailrace_common.settings import Settings, load_settings
from tailrace_schemas.position import Position
from tests.support.waiting import until
from tests.unit.capture.segments import released

NODE = {"cdc_total_space": "1MiB", "commitlog_segment_size": "1MiB", "cdc_block_writes": "true"}


def settings_of(tmp_path: Path, **given: str) -> Settings:
    """A node's cdc_raw, and places of our own."""
    (tmp_path / "cdc_raw").mkdir(exist_ok=True)
    environ = {
        "CDC_RAW_DIRECTORY": str(tmp_path / "cdc_raw"),
        "SPOOL_DIRECTORY": str(tmp_path / "spool"),
        "ARCHIVE_DIRECTORY": str(tmp_path / "archive"),
        "POLL_SECONDS": "0.01",
        **given,
    }
    return load_settings(None, {f"TAILRACE_AGENT__{name}": value for name, value in environ.items()})


def board() -> HealthBoard:
    return HealthBoard(lambda: 0.0)


def test_what_becomes_of_published_segments(tmp_path: Path) -> None:
    assert release_of(settings_of(tmp_path).agent, "h", 1) is DELETED
    assert release_of(settings_of(tmp_path, ON_RELEASE="keep").agent, "h", 1) is KEPT
    archive = release_of(settings_of(tmp_path, ON_RELEASE="archive").agent, "h", 2)
    assert archive.target is not None
    assert archive.target(Path("/x/a.log")) == tmp_path / "archive" / "h" / "2" / "a.log"


def test_cdc_raw_is_looked_after_while_nothing_else_moves(tmp_path: Path) -> None:
    """Before Kafka has answered: no session has begun. The spool is the host's own."""
    for id in (5, 6):
        released(tmp_path, id, b"a" * 10, completed=True)
    health = board()
    care = Care(settings_of(tmp_path).agent, "h", health, lambda: NodeSettings(NODE))
    with closing(care.begin()):
        until(lambda: health.now.counts.get("spooled") == 2, "two spooled segments", state=lambda: health.now)
    assert sorted(path.name for path in (tmp_path / "spool" / "h" / "1").glob("*.log")) == [
        "CommitLog-7-5.log",
        "CommitLog-7-6.log",
    ]
    assert health.now.headroom is not None
    with closing(care.capture(Resume(), NO_KEYS)) as capture:
        assert [entry.position.segment for entry in (*capture.read(9), *capture.read(9))] == [5, 6]


def test_segments_of_an_earlier_log_epoch_are_named(tmp_path: Path) -> None:
    """They are not published, and not deleted; until somebody has done both."""
    old = tmp_path / "spool" / "h" / "1"
    old.mkdir(parents=True)
    (old / "CommitLog-7-5.log").touch()
    health, cause = board(), "spool of an earlier log epoch"
    care = Care(settings_of(tmp_path).agent, "h", health, lambda: NodeSettings(NODE))
    care.capture(Resume(Position(2, -1, 0)), NO_KEYS).close()
    with closing(care.begin()):
        until(lambda: cause in health.now.degraded, "words", state=lambda: health.now)
        words = health.now.degraded[cause]
        assert words.startswith(f"{old} has segments of an earlier log epoch")
        assert f"`tailrace replay {old}`" in words
        (old / "CommitLog-7-5.log").unlink()
        until(lambda: cause not in health.now.degraded, "the end of it", state=lambda: health.now)


@pytest.mark.parametrize(
    ("counts", "cause", "code"),
    [
        ({}, "service", 0),
        ({"changes": 9, "spooled": 1}, "headroom", 0),
        ({}, "segment 7", 3),
        ({"dead_letters": 1}, "", 3),
        ({"lost": 1}, "segment 7", 4),
        ({"unknown": 1}, "", 4),
    ],
)
def test_what_the_agent_ends_with(counts: dict[str, int], cause: str, code: int) -> None:
    """Loss before what is set aside; other problems are no reason."""
    health = board()
    health.count(**counts)
    if cause:
        health.degrade(cause, "words")
    assert exit_code(health.now) == code
