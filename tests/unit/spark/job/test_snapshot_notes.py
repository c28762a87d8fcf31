"""Notes of snapshots beside a checkpoint: one is whole whatever dies, and each request is taken once."""

from __future__ import annotations

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


def test_requests_come_in_their_order_and_damaged_ones_are_passed_over(tmp_path: Path) -> None:
    notes = notes_in(tmp_path)
    assert notes.requested() == []
    requests = [
        Request(id=name, action="pause", table="shop.orders", asked=at) for name, at in (("b", 2.0), ("a", 10.0))
    ]
    for request in reversed(requests):
        notes.ask(request)
    (tmp_path / REQUESTS / "000000000000001-x.json").write_text("{")
    (tmp_path / REQUESTS / ".half.new").write_text("{")
    assert [request for _, request in notes.requested()] == requests
    assert not (tmp_path / REQUESTS / "000000000000001-x.json").exists()
    for name, _ in notes.requested():
        notes.take(name)
    assert notes_in(tmp_path).requested() == []
