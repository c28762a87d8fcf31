"""`tailrace offsets` and `hosts`, as far as they need no service: files, guards, rows."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from uuid import UUID

import pytest
import typer
from typer.testing import CliRunner

from tailrace.cli.cluster import offsets
from tailrace.cli.cluster.hosts import Members, host_rows, progress_words, require_gone, retired_words
from tailrace.cli.main import complete
from tailrace.cli.support.records import between, present, require_boundary, require_unchanged
from tailrace.commitlog.blocks import NO_KEYS
from tailrace.errors import AgentRunsError
from tailrace.publish.hosts import Between, HostRecord
from tailrace.state import Parked, Quarantined, Resume
from tailrace_common.cli.options import confirm
from tailrace_common.settings import Settings
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.position import Position
from tailrace_schemas.progress import Progress
from tailrace_schemas.ring import Node, Ring
from tests.unit.capture.segments import SegmentWriter

PAYLOADS = (b"0123456789", b"0123456789ab")


def at(segment: int, offset: int) -> Position:
    return Position(1, segment, offset)


def test_mutations_between_two_positions_are_counted(tmp_path: Path) -> None:
    """Behind the lower one, up to the higher one; back only whole where reading can begin."""
    writers = [SegmentWriter(tmp_path, segment) for segment in (10, 20, 30)]
    ends = [[*writer.write(*PAYLOADS), *writer.write(PAYLOADS[0])] for writer in writers]
    raw = writers[0].raw
    first, last = at(10, ends[0][0]), at(30, ends[2][1])
    assert between(raw, first, last, NO_KEYS) == Between(2 + 3 + 2, (10, 20, 30), True)
    assert between(raw, last, first, NO_KEYS) == Between(2 + 3 + 2, (10, 20, 30), True)
    assert between(raw, at(20, ends[1][2]), at(30, 0), NO_KEYS) == Between(0, (), True)
    assert between(raw, last, at(5, 0), NO_KEYS) == Between(3 + 3 + 2, (10, 20, 30), False)
    assert between(raw, at(5, 0), last, NO_KEYS) == Between(3 + 3 + 2, (10, 20, 30), True)
    writers[1].patch(ends[1][0] - 1, b"\xff")
    assert between(raw, first, last, NO_KEYS) == Between(2 + 0 + 2, (10, 30), False)


def test_a_position_in_a_mutation_s_middle_is_refused(tmp_path: Path) -> None:
    """Reading would find no frame there, and set the segment aside."""
    writer = SegmentWriter(tmp_path, 10)
    ends = [*writer.write(*PAYLOADS), *writer.write(PAYLOADS[0])]
    for offset in (0, *ends):
        require_boundary(writer.raw, at(10, offset), NO_KEYS)
    for offset in set(range(1, ends[2] + 50)) - set(ends):
        with pytest.raises(
            SettingsError, match=r"is not behind a mutation of CommitLog-7-10\.log; the last one .* 10:"
        ):
            require_boundary(writer.raw, at(10, offset), NO_KEYS)
    require_boundary(writer.raw, at(11, 5), NO_KEYS)  # a segment that is gone: nothing can be said
    writer.patch(ends[1] - 1, b"\xff")
    with pytest.raises(SettingsError, match="is damaged before it"):
        require_boundary(writer.raw, at(10, ends[2]), NO_KEYS)


def test_segments_in_the_spool_count_too(tmp_path: Path) -> None:
    """While Kafka is away the oldest are there alone."""
    writers = [SegmentWriter(tmp_path, segment) for segment in (10, 20, 30)]
    ends = [writer.write(*PAYLOADS) for writer in writers]
    raw, spool = writers[0].raw, tmp_path / "spool" / "h" / "1"
    before, target = at(10, ends[0][0]), at(20, ends[1][1])
    assert between(raw, target, before, NO_KEYS, spool) == Between(3, (10, 20), True)
    spool.mkdir(parents=True)
    for writer in writers[:2]:
        writer.link.rename(spool / writer.link.name)
    assert between(raw, before, target, NO_KEYS, spool) == Between(3, (10, 20), True)
    assert between(raw, target, before, NO_KEYS, spool) == Between(3, (10, 20), True)
    resume, settings = Resume(before), Settings()
    assert [id for id, _ in offsets.checked_move(settings, resume, before, target, raw, spool).open] == [10, 20]
    with pytest.raises(SettingsError, match=r"is not behind a mutation of CommitLog-7-20\.log"):
        offsets.checked_move(settings, resume, before, at(20, ends[1][1] - 1), raw, spool)


def test_the_segments_of_a_directory(tmp_path: Path) -> None:
    """By id and header checksum, as `open` has them."""
    writers = [SegmentWriter(tmp_path, segment) for segment in (10, 20)]
    assert [segment for segment, _ in present(writers[0].raw)] == [10, 20]
    assert len({checksum for _, checksum in present(writers[0].raw)}) == 2
    with pytest.raises(ServiceError, match=r"cannot read .*none: No such file"):
        present(tmp_path / "none")


def test_a_record_that_changed_meanwhile_is_left_alone() -> None:
    """What was shown and agreed to is no longer what would happen."""
    record = HostRecord("c", "h", Resume(at(1, 1)), 0)
    require_unchanged(record, Resume(at(1, 1)))
    with pytest.raises(AgentRunsError, match=r"committed 1/1:2 meanwhile.*Nothing was changed"):
        require_unchanged(record, Resume(at(1, 2)))


def test_without_a_terminal_nothing_is_asked() -> None:
    confirm("Move it?", True)
    with pytest.raises(SettingsError, match=r"Move it\? There is no terminal to ask on: give --yes"):
        confirm("Move it?", False)


def test_a_no_on_the_terminal_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = io.StringIO("y\nn\n")
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    confirm("Move it?", False)
    with pytest.raises(typer.Exit) as end:
        confirm("Move it?", False)
    assert end.value.exit_code == 1
    assert "nothing was changed" in capsys.readouterr().err


def test_adopt_wants_to_be_told_so() -> None:
    result = CliRunner().invoke(complete(), ["offsets", "adopt"])
    assert result.exit_code == 2
    assert "give --new-log, if the node's commit log is another one than before" in result.stderr


def _hosts() -> tuple[HostRecord, ...]:
    bad = Quarantined(60, 6, 20, "wrong checksum")
    return (
        HostRecord("c", "a", Resume(at(70, 400), ((60, 6), (70, 9)), (bad,)), 1_000_000),
        HostRecord("c", "b", None, 1_000_000, "version 9"),
    )


def test_show_is_json_lines_when_piped(capsys: pytest.CaptureFixture[str]) -> None:
    offsets.show_hosts(_hosts(), 1090.5)
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first == {
        "cluster": "c",
        "host": "a",
        "position": {"epoch": 1, "segment": 70, "offset": 400},
        "known_segments": [{"segment": 60, "checksum": 6}, {"segment": 70, "checksum": 9}],
        "quarantined": [{"segment": 60, "checksum": 6, "offset": 20, "reason": "wrong checksum"}],
        "committed": "1970-01-01T00:16:40.000+00:00",
        "age_seconds": 90.5,
    }
    assert (second["position"], second["problem"]) == (None, "version 9")


def test_show_is_a_table_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    offsets.show_hosts(_hosts(), 1000 + 3 * 86_400.0)
    out, err = capsys.readouterr()
    cells = [cell.strip() for cell in out.splitlines()[3].strip("│").split("│")]
    assert cells == ["c", "a", "1/70:400", "2", "1", "3 d"]
    assert err == "a: segment 60 is read up to 20 only: wrong checksum\n"


RING = Ring((Node("a", "dc1", (1,)), Node("new", "dc2", (2,))))


def test_hosts_are_held_against_the_ring() -> None:
    hosts = (*_hosts(), HostRecord("d", "x", Resume(), 0))
    members = Members("c", RING, {"a": "10.0.0.1", "new": "10.0.0.2"}, {"10.0.0.2": "cassandra-2"})
    rows = {
        row["host"]: (row["name"], row["address"], row["state"], row["datacenter"])
        for row in host_rows(hosts, members, 0.0)
    }
    assert rows == {
        "a": (None, "10.0.0.1", "in the ring", "dc1"),
        "b": (None, None, "gone", None),
        "x": (None, None, "of another cluster", None),
        "new": ("cassandra-2", "10.0.0.2", "never published", "dc2"),
    }


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (
            Progress("c", "a", Position(1, 2, 3), Position(1, 2, 3), 1_000_000, caught_up=True),
            "caught up, as of 5 s ago",
        ),
        (
            Progress("c", "a", Position(1, 2, 3), Position(1, 2, 3), 1_000_000, parked=1, quarantined=2),
            "behind, as of 5 s ago; 1 mutation parked; 2 segments quarantined",
        ),
        (None, None),
    ],
)
def test_progress_is_said_in_words_that_need_no_manual(progress: Progress | None, words: str | None) -> None:
    assert progress_words(progress, 1005.0) == words


def test_what_goes_with_a_retired_host_is_said() -> None:
    """Its parked mutations are in segments of a node that is gone for good, and are forgotten with it."""
    lots = tuple(Parked(1, segment, 6, UUID(int=1), 5, (5, 9), 0, "no definition") for segment in (10, 20))
    record = HostRecord("c", "a", Resume(at(70, 400), parked=lots), 1_000_000)
    assert retired_words(record, 1090) == (
        "host a published up to 1/70:400, last 90 s ago. It has 4 parked mutations, which are published never then"
    )
    assert "parked" not in "".join(retired_words(record, 1090) for record in _hosts())


def test_only_a_host_that_is_gone_is_retired() -> None:
    a, b = _hosts()
    require_gone(b, "c", RING)
    with pytest.raises(SettingsError, match="host a is in the ring of c"):
        require_gone(a, "c", RING)
    with pytest.raises(SettingsError, match="published for the cluster 'c', and the settings reach 'd'"):
        require_gone(b, "d", RING)
