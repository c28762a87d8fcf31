"""DDL out of every segment that was linked: without an index, before it vanishes, in order, each mutation once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tailrace.capture.cdcraw import CdcRaw
from tailrace.commitlog.blocks import NO_KEYS, Keys
from tailrace.commitlog.descriptor import read_descriptor
from tailrace.commitlog.sections import sections
from tailrace.schema.ddl_log import Gap, SchemaLog
from tailrace.segments.kept import KeptSegments
from tailrace.state import Resume
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.position import Position
from tailrace_schemas.system_tables import system_table_id
from tests.unit.capture.recorded import KINDS, lay_out
from tests.unit.capture.segments import SegmentWriter, released, written
from tests.unit.commitlog.recorded import KEYS, recorded
from tests.unit.mutations import EPOCH, deletion
from tests.unit.tables import table

ORDERS = table({"id": "text"})
A, B, C, D = (
    deletion(system_table_id("system_schema", name), b"ks") for name in ("tables", "columns", "types", "views")
)
ROW = deletion(ORDERS, b"key")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SchemaLog]:
    """A reader of the writer's cdc_raw."""
    (tmp_path / "cdc_raw").mkdir()
    with closing(SchemaLog(tmp_path / "cdc_raw", KeptSegments())) as log:
        yield log


def payloads(log: SchemaLog, until: Position | None = None) -> list[bytes]:
    """What is there now."""
    return [entry.payload for entry in log.read(until)]


def test_everything_up_to_the_last_valid_marker(tmp_path: Path, log: SchemaLog) -> None:
    """No index is asked for; other mutations are stepped over; nothing comes twice."""
    segment = SegmentWriter(tmp_path, 5)
    assert (payloads(log), log.began) == ([], None)
    ends = segment.write(ROW, A, ROW, B)
    assert [(entry.position, entry.payload, entry.file) for entry in log.read(None)] == [
        (Position(1, 5, ends[1]), A, segment.link.name),
        (Position(1, 5, ends[3]), B, segment.link.name),
    ]
    assert payloads(log) == []
    end = segment.write(ROW, C)[-1]
    assert payloads(log) == [C]
    assert (log.read_up_to, log.began) == (Position(1, 5, end), EPOCH)


def test_a_segment_that_vanishes_is_read_to_its_end(tmp_path: Path, log: SchemaLog) -> None:
    """It was opened when it was there; also one that was only begun then, and one that came and went unlisted."""
    first, second = SegmentWriter(tmp_path, 5), SegmentWriter(tmp_path, 6)
    first.write(A)
    assert payloads(log) == [A]
    first.write(B)
    second.write(C)
    for one in (first, second):
        one.vanish()
    written(tmp_path, 7, D)
    assert payloads(log) == [B, C, D]
    assert log.gaps == []


def test_one_that_came_and_went_between_two_looks(tmp_path: Path) -> None:
    """Whoever is told of its creation keeps it."""
    kept = KeptSegments()
    first = SegmentWriter(tmp_path, 5)
    with closing(SchemaLog(first.raw, kept)) as log:
        first.write(A)
        assert payloads(log) == [A]
        quick = SegmentWriter(tmp_path, 6)
        kept.keep(quick.link)
        kept.keep(quick.index)
        kept.keep(tmp_path / "cdc_raw" / "CommitLog-7-9.log")
        quick.write(B)
        quick.vanish()
        written(tmp_path, 7, C)
        assert payloads(log) == [B, C]
        assert log.gaps == []
        kept.keep(first.link)
        assert kept.paths() == {}


def test_no_more_than_so_many_are_kept(tmp_path: Path) -> None:
    """The oldest are let go, and leave a gap."""
    kept = KeptSegments()
    writers = [SegmentWriter(tmp_path, id, size=128) for id in range(5, 75)]
    with closing(SchemaLog(writers[0].raw, kept)) as log:
        log.begin(Position(1, 5, 0), 1)
        for writer in writers:
            writer.write(A)
            kept.keep(writer.link)
            writer.vanish()
        assert payloads(log) == [A] * 64
        assert log.gaps == [Gap(Position(1, 5, 0), Position(1, 11, 0), EPOCH)]


def test_one_that_is_gone_unseen_leaves_a_gap(tmp_path: Path, log: SchemaLog) -> None:
    """By its number; what is behind is read."""
    written(tmp_path, 5, A)
    assert payloads(log) == [A]
    written(tmp_path, 7, B)
    assert payloads(log) == [B]
    assert log.gaps == [Gap(Position(1, 6, 0), Position(1, 7, 0), EPOCH)]


def test_a_segment_goes_on_until_a_later_one_has_begun(tmp_path: Path, log: SchemaLog) -> None:
    """Cassandra allocates the next one ahead, all zeros or with a header: that ends nothing."""
    first = SegmentWriter(tmp_path, 5)
    SegmentWriter(tmp_path, 6)
    (first.raw / "CommitLog-7-7.log").write_bytes(bytes(4096))
    first.write(A)
    assert payloads(log) == [A]
    first.write(B)
    assert payloads(log) == [B]
    later = SegmentWriter(tmp_path, 8)
    first.write(C)
    later.write(D)
    assert payloads(log) == [C, D]


def test_a_segment_read_on_behind_a_place(tmp_path: Path, log: SchemaLog) -> None:
    """After a restart: what was read is not read again, and no gap where the segment is still there."""
    SegmentWriter(tmp_path, 4).write(D)
    segment = SegmentWriter(tmp_path, 5)
    ends = segment.write(A, B)
    segment.write(C)
    log.begin(Position(1, 5, ends[0]), 1)
    assert payloads(log) == [B, C]
    assert log.gaps == []


@pytest.mark.parametrize("how", ["completed", "discarded", "later"])
def test_a_place_behind_a_segment_s_end(tmp_path: Path, log: SchemaLog, how: str) -> None:
    """Once nothing more can come; a start there misses nothing although the segment was released."""
    segment = released(tmp_path, 5, A)
    assert payloads(log) == [A]
    assert log.read_up_to == Position(1, 5, segment.at)
    if how == "completed":
        segment.sync(completed=True)
    elif how == "discarded":
        segment.discard()
    else:
        SegmentWriter(tmp_path, 6).write(B)
    assert payloads(log) == ([B] if how == "later" else [])
    assert log.read_up_to is not None
    assert log.read_up_to >= Position(1, 6, 0)
    segment.link.unlink()
    with closing(SchemaLog(segment.raw, KeptSegments())) as again:
        again.begin(Position(1, 6, 0), 1)
        later = SegmentWriter(tmp_path, 6) if how != "later" else SegmentWriter(tmp_path, 7)
        later.write(C)
        assert payloads(again)[-1] == C
        assert again.gaps == []


@pytest.mark.parametrize("there", [6, 7])
def test_a_start_after_the_segment_is_gone(tmp_path: Path, log: SchemaLog, there: int) -> None:
    """Perhaps it had more: a gap, also to the very next."""
    SegmentWriter(tmp_path, there).write(A)
    log.begin(Position(1, 5, 100), 1)
    assert payloads(log) == [A]
    assert log.gaps == [Gap(Position(1, 5, 100), Position(1, there, 0), EPOCH)]


def test_a_torn_section_is_waited_for_and_then_a_gap(tmp_path: Path, log: SchemaLog) -> None:
    """The writer may be met half-way; behind the segment's end nothing more will come."""
    segment = written(tmp_path, 5, A)
    start = segment.at
    segment.write(B)
    segment.patch(start + 8 + 30, b"\xff\xff")
    assert payloads(log) == [A]
    assert payloads(log) == []
    assert log.gaps == []
    SegmentWriter(tmp_path, 6).write(C)
    assert payloads(log) == [C]
    assert log.gaps == [Gap(Position(1, 6, 0), Position(1, 6, 0), EPOCH)]


def test_a_segment_without_the_end_that_its_index_released_is_a_gap(tmp_path: Path, log: SchemaLog) -> None:
    """Its pages are zeros, which look like the clean end; DDL may have stood there."""
    segment = SegmentWriter(tmp_path, 5)
    start = segment.write(A)[-1]
    segment.write(B)
    segment.sync(completed=True)
    segment.patch(start, bytes(segment.at - start))
    written(tmp_path, 6, C)
    assert payloads(log) == [A, C]
    assert log.gaps == [Gap(Position(1, 6, 0), Position(1, 6, 0), EPOCH)]


def test_no_more_than_is_asked_for_at_once(tmp_path: Path, log: SchemaLog) -> None:
    """About 2 MiB ahead, so that changes do not wait; but always as far as the changes at hand."""
    size = 1 << 20
    writers = [SegmentWriter(tmp_path, id, size=4 * size) for id in (5, 6)]
    for writer in writers:
        for payload in (A, B, C):
            writer.write(payload, bytes(size))
    for writer in writers:
        writer.sync(completed=True)
    assert payloads(log, Position(1, 5, 10)) == [A, B]
    assert payloads(log, Position(1, 6, 10)) == [C, A, B]
    assert payloads(log) == [C]


def test_all_of_it_where_nothing_waits(tmp_path: Path, log: SchemaLog) -> None:
    """However much."""
    for id in (5, 6):
        writer = SegmentWriter(tmp_path, id, size=4 << 20)
        for payload in (A, B, C):
            writer.write(payload, bytes(1 << 20))
    assert payloads(log) == [A, B, C, A, B, C]


def test_what_was_read_before_is_not_looked_at_with_every_batch(tmp_path: Path, log: SchemaLog) -> None:
    """But now and then, and at once where there is nothing else to do, or changes are ahead."""
    segment = SegmentWriter(tmp_path, 5)
    end = segment.write(A)[-1]
    assert payloads(log, Position(1, 5, end)) == [A]
    further = segment.write(B)[-1]
    found = [payloads(log, Position(1, 5, end)) for _ in range(33)]
    assert found == [[]] * 32 + [[B]]
    last = segment.write(C)[-1]
    assert payloads(log, Position(1, 5, further)) == []
    assert payloads(log, Position(1, 5, last)) == [C]
    segment.write(D)
    assert payloads(log) == [D]


def test_a_directory_that_is_not_there_says_which_setting(tmp_path: Path) -> None:
    """And that it can be tried again."""
    with (
        closing(SchemaLog(tmp_path / "no", KeptSegments())) as log,
        pytest.raises(ServiceError, match=r"agent\.cdc_raw"),
    ):
        log.read(None)


@pytest.mark.parametrize("kind", KINDS)
def test_real_segments(kind: str, tmp_path: Path) -> None:
    """The DDL of recorded segments, compressed and encrypted too, is what a reader of all mutations finds of it."""
    folder = recorded(kind)
    raw = lay_out(folder, tmp_path)
    ids = {system_table_id("system_schema", name).bytes for name in ("tables", "columns", "types", "keyspaces")}
    with closing(SchemaLog(raw, KeptSegments(), KEYS)) as log:
        found = [(entry.position, entry.payload) for entry in log.read(None)]
        assert log.read_up_to is not None
        # The last bytes of a section need not be a frame's.
        last = {
            read_descriptor(data).id: list(sections(read_descriptor(data), data, keys=KEYS))[-1]
            for data in folder.segments.values()
        }
        assert log.read_up_to == Position(1, max(last), last[max(last)].end.logical)
    for name in folder.segments:
        (raw / name.replace(".log", "_cdc.idx")).write_text("1\nCOMPLETED")
    expected = []
    with closing(CdcRaw(raw, Resume(), KEYS)) as capture:
        while entries := capture.read(1000):
            at = 2 if entries[0].version == 9 else 1
            expected += [(e.position, e.payload) for e in entries if e.payload[at : at + 16] in ids]
    assert [one for one in found if one[1][1:17] in ids or one[1][2:18] in ids] == expected


@pytest.mark.parametrize("keys", [NO_KEYS, Keys(otherwise=bytes(16))], ids=["none", "another"])
def test_without_its_key_no_segment_is_passed_over(keys: Keys, tmp_path: Path) -> None:
    """Once the key is there, its DDL is read."""
    raw = lay_out(recorded("4.0-beta4/encrypted"), tmp_path)
    (index,) = (log.with_name(f"{log.stem}_cdc.idx") for log in raw.glob("*.log"))
    index.write_text("1\nCOMPLETED")
    with (
        closing(SchemaLog(raw, KeptSegments(), keys)) as log,
        pytest.raises(SettingsError, match=r"agent\.keystore"),
    ):
        log.read(None)
    assert log.gaps == []
