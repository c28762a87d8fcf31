"""Notes of snapshots beside a checkpoint: one is whole whatever dies, and each request is taken once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tailrace_schemas.errors import SettingsError
from tailrace_spark.job.checkpoint_files import LocalFiles
from tailrace_spark.job.snapshot_notes import REQUESTS, SnapshotNotes
from tailrace_spark.snapshot.progress import Request, Snapshots, TableSnapshot


def notes_in(folder: Path) -> SnapshotNotes:
    return SnapshotNotes(LocalFiles(folder), LocalFiles(folder / REQUESTS), "c")


@pytest.mark.slow
def test_a_note_that_is_cut_off_leaves_the_one_before(tmp_path: Path) -> None:
    notes, value = notes_in(tmp_path), Snapshots()
    assert notes.read() == value
    for number in range(1, 6):
        value = replace(value.added(TableSnapshot(id=str(number), table="shop.orders", asked=0.0)), sequence=number)
        notes.write(value)
        assert notes_in(tmp_path).read() == value
    newest = tmp_path / f"snapshots-{value.sequence % 2}.json"
    text = newest.read_text()
    for end in range(len(text)):
        newest.write_text(text[:end])
        assert notes.read().sequence == value.sequence - 1
    (tmp_path / f"snapshots-{1 - value.sequence % 2}.json").unlink()
    with pytest.raises(SettingsError, match=r"or remove snapshots-0.json and snapshots-1.json: snapshots then begin"):
        notes.read()


@pytest.mark.promise("upgrade.later-records")
def test_progress_that_a_later_version_wrote_is_refused_though_an_earlier_one_is_beside_it(tmp_path: Path) -> None:
    """The files are written by turns, so that a later version has written one of them at first."""
    notes = notes_in(tmp_path)
    for sequence in (1, 2):
        notes.write(Snapshots(sequence=sequence))
    newer = tmp_path / "snapshots-1.json"
    newer.write_text(json.dumps({**json.loads(newer.read_text()), "sequence": 3, "version": 2}))
    with pytest.raises(SettingsError, match=r"snapshots-1\.json: .* by another version of Tailrace \(format 2"):
        notes.read()


def test_requests_come_in_their_order_and_those_that_cannot_be_read_wait(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    notes = notes_in(tmp_path)
    assert notes.requested() == []
    requests = [
        Request(id=name, action="pause", table="shop.orders", asked=at) for name, at in (("b", 2.0), ("a", 10.0))
    ]
    for request in reversed(requests):
        notes.ask(request)
    unreadable = tmp_path / REQUESTS / "000000000000001-x.json"
    unreadable.write_text("{")
    (tmp_path / REQUESTS / ".half.new").write_text("{")
    for _ in range(2):
        assert [request for _, request in notes.requested()] == requests
    [warning] = caplog.messages
    assert "000000000000001-x.json cannot be read and waits" in warning
    for name, _ in notes.requested():
        notes.take(name)
    assert notes_in(tmp_path).requested() == []
    unreadable.write_text(requests[0].to_json())  # as on a file system that shows a file before it is whole
    assert [request for _, request in notes.requested()] == requests[:1]
