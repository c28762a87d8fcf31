"""Damaged and foreign files in cdc_raw: what is damaged is read up to the damage and kept, everything else goes on."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tailrace.assembly.cdc_raw import QUARANTINED
from tailrace.commitlog.descriptor import read_descriptor
from tailrace.commitlog.frames import frames
from tailrace.commitlog.sections import Section, sections
from tailrace.local import CassandraSettings, LocalCassandra, LocalKafka
from tests.integration.agents import AgentProcess, cql, ints
from tests.integration.cdc_raw import Bench
from tests.integration.faults.trial import Trial, finished, number, until_more
from tests.support.waiting import until

LOG_BYTES: Final = 4_000_000
"""More than the agent's log, debug lines included, has in these tests; a loop writes it in a second."""

Damage = Callable[[bytes, list[Section]], tuple[bytes, int]]
"""A segment and its sections to what is left of it, and the position up to which it is sound."""


def truncated(data: bytes, found: list[Section]) -> tuple[bytes, int]:
    """In the middle of a section: all of that one is gone, as its marker points past the end."""
    section = found[len(found) // 2]
    return data[: (section.start.marker + section.end.marker) // 2], section.start.logical


def flipped_in_a_payload(data: bytes, found: list[Section]) -> tuple[bytes, int]:
    """The mutations before it are sound."""
    section = found[len(found) // 2]
    ends = [frame.end for frame in frames(section)]
    middle = ends[len(ends) // 2]
    return flipped(data, middle + 20), middle


def flipped_in_a_section_header(data: bytes, found: list[Section]) -> tuple[bytes, int]:
    """The sections before it are sound."""
    section = found[len(found) // 2]
    return flipped(data, section.start.marker + 2), section.start.logical


def zero_tail(data: bytes, found: list[Section]) -> tuple[bytes, int]:
    """Bytes that never reached the disk, behind a marker that did."""
    section = found[len(found) // 2]
    ends = [frame.end for frame in frames(section)]
    middle = ends[len(ends) // 2]
    return data[:middle] + bytes(len(data) - middle), middle


def empty(_data: bytes, _found: list[Section]) -> tuple[bytes, int]:
    return b"", 0


def all_zero(data: bytes, _found: list[Section]) -> tuple[bytes, int]:
    return bytes(len(data)), 0


def of_a_version_to_come(data: bytes, _found: list[Section]) -> tuple[bytes, int]:
    return b"\x00\x00\x00\x63" + data[4:], 0


def text(_data: bytes, _found: list[Section]) -> tuple[bytes, int]:
    return b"not a commit log\n" * 1000, 0


DAMAGES: Final[tuple[Damage, ...]] = (
    truncated,
    flipped_in_a_payload,
    flipped_in_a_section_header,
    zero_tail,
    empty,
    all_zero,
    of_a_version_to_come,
    text,
)


def flipped(data: bytes, at: int) -> bytes:
    """One bit."""
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def damage(path: Path, how: Damage) -> int:
    """Put a damaged copy into the place of a segment of cdc_raw, whose own file stays as it is in the commit log."""
    data = path.read_bytes()
    spoilt, good = how(data, list(sections(read_descriptor(data), data)))
    copy = path.with_name("copy")
    copy.write_bytes(spoilt)
    copy.replace(path)
    return good


@contextmanager
def damaged(paths: dict[Path, Damage]) -> Iterator[dict[Path, int]]:
    """Each of the segments damaged in its way, until the exit: others' agents would meet them. Up to where each is
    sound."""
    good = {path: damage(path, how) for path, how in paths.items()}
    try:
        yield good
    finally:
        for path in good:
            path.unlink(missing_ok=True)
            path.with_name(f"{path.stem}_cdc.idx").unlink(missing_ok=True)


@pytest.mark.promise("agent.damaged-segment", "others.flipped-bit", "others.truncated-segment")
@pytest.mark.long
def test_damaged_segments(trial: Trial) -> None:
    """Of each damage one, while the agent stands still, sound segments between them: each is kept, named in health with
    the place and the reason, and read up to there, once, by the next agent too; the log of it all stays short."""
    load = trial.load(rate=150, bulk=60_000)
    with ExitStack() as stack, trial.agent() as agent:
        until_more(agent)
        agent.signal(signal.SIGSTOP)
        there = {path.name for path in trial.cassandra.cdc_raw.glob("*.log")}

        def untouched() -> list[Path]:
            """Segments that the agent cannot have open, without the newest."""
            return [path for path in finished(trial) if path.name not in there][:-1]

        until(lambda: len(untouched()) >= 2 * len(DAMAGES), "enough segments to damage", 120)
        load.end()
        paths = untouched()
        good = stack.enter_context(damaged(dict(zip(paths[::2], DAMAGES, strict=False))))
        agent.signal(signal.SIGCONT)
        last = trial.mark()
        agent.until(lambda: trial.is_published(last))
        check_quarantined(agent, good)
        agent.kill()
        agent.start()
        agent.until_ready()
        check_quarantined(agent, good)
        last = trial.mark()
        agent.until(lambda: trial.is_published(last))
        agent.until(lambda: not [path for path in paths if path not in good and path.exists()])
        assert agent.stop() == QUARANTINED, agent.words()
        assert all(path.exists() for path in good), "what is damaged is nowhere else"
    assert agent.log.stat().st_size < LOG_BYTES
    verdict = trial.verdict(last)
    limits = {number(path): offset for path, offset in good.items()}
    for fact in verdict.lost:
        segment, offset, _ = fact.place
        assert offset > limits.get(segment, 2**31), f"{fact} stands before the damage, or in a sound segment"
    assert {fact.place[0] for fact in verdict.lost} == limits.keys()
    assert replace(verdict, lost=()).sound, str(verdict)


def check_quarantined(agent: AgentProcess, good: dict[Path, int]) -> None:
    """Health names each of the damaged segments, and how far it was read."""

    def named() -> dict[str, str]:
        degraded = agent.status().get("degraded", {})
        return {cause: words for cause, words in degraded.items() if cause.startswith("segment ")}

    agent.until(lambda: len(named()) >= len(good))
    assert named().keys() == {f"segment {number(path)}" for path in good}
    for path in good:
        words = named()[f"segment {number(path)}"]
        assert words.startswith("quarantined behind "), words
        assert path.name in words


@pytest.mark.promise("agent.foreign-files")
@pytest.mark.long
def test_files_that_are_none_of_cassandras(trial: Trial) -> None:
    """Names of others, folders, links in a circle: left alone, told of once."""
    raw = trial.cassandra.cdc_raw
    load = trial.load(rate=200)
    others = [raw / name for name in ("notes.txt", "CommitLog-7-12.log.gz", "CommitLog-7-99999999999990.log", "circle")]
    with trial.agent() as agent:
        until_more(agent)
        try:
            others[0].write_text("someone's")
            others[1].write_bytes(b"\x1f\x8b")
            others[2].mkdir()
            others[3].symlink_to(others[3])
            until_more(agent)
            load.end()
            trial.settle(agent)
            assert all(path.is_symlink() or path.exists() for path in others)
        finally:
            others[2].rmdir()
            for path in (others[0], others[1], others[3]):
                path.unlink()
    told = [line for line in agent.log.read_text().splitlines() if "are ignored" in line]
    for path in others:
        assert len([line for line in told if path.name in line]) == 1, path.name
    assert agent.log.stat().st_size < LOG_BYTES


@pytest.mark.promise("agent.another-log")
@pytest.mark.long
def test_an_older_segment_of_another_log(trial: Trial) -> None:
    """It may be the node's with another disk: the agent ends and says so, and goes on when the file is moved away."""
    load = trial.load(rate=200)
    old = trial.cassandra.cdc_raw / "CommitLog-7-12.log"
    with trial.agent() as agent:
        until_more(agent)
        newest = max(trial.cassandra.cdc_raw.glob("*.log"), key=number)
        try:
            old.write_bytes(newest.read_bytes())
            assert agent.ended() == 1
            assert f"{old.name} is at or below the published position" in agent.words()
        finally:
            old.unlink()
        agent.start()
        until_more(agent)
        load.end()
        trial.settle(agent)


@pytest.mark.promise("agent.vanished-segments", "agent.deleted-segments")
@pytest.mark.long
@pytest.mark.timeout(600)
def test_segments_that_somebody_deletes(kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path) -> None:
    """With their indexes, while no agent runs: published from the commit log, which has them still. While one stands
    still, and the commit log has deleted them too: lost, exactly these ids, and everything else is published."""
    yaml = {"commitlog_total_space": "16MiB"}
    with LocalCassandra(tmp_path / "node", CassandraSettings(heap_mib=384, cdc_total_mib=256, yaml=yaml)) as node:
        bench = Bench(node, kafka, prefix, keyspace_name, tmp_path)
        bench.begin()
        with cql(node) as session:
            with bench.agent() as agent:
                bench.write(session, range(100))
                agent.until(lambda: agent.count("changes") >= 100)
                assert agent.stop() == 0, agent.words()
                bench.write(session, range(100, 400))
                removed = remove_finished(node, lambda name: (node.commitlog / name).exists())
                assert len(removed) >= 3, "this shows nothing"
                agent.start()
                agent.until(lambda: ints(bench.records()) == Counter(range(400)))
                assert agent.stop() == 0, agent.words()
            with bench.agent() as agent:
                agent.until_ready()
                agent.signal(signal.SIGSTOP)
                bench.write(session, range(400, 2000))
                removed = remove_finished(node, lambda name: not (node.commitlog / name).exists())
                assert len(removed) >= 3, "this shows nothing"
                agent.signal(signal.SIGCONT)
                bench.write(session, range(2000, 2100))
                agent.until(lambda: ints(bench.records()).keys() >= set(range(2000, 2100)))
                assert agent.stop() == 4, agent.words()
    spans = [loss["segments"] for loss in bench.losses().values() if loss["kind"] == "lost"]
    lost = {id for first, last in spans for id in range(first, last + 1)}
    segments = {record.change.source.position.segment for record in bench.records() if record.change.source is not None}
    assert len(lost) >= 3
    assert lost == removed - segments, "those that the agent had open are read all the same"
    assert set(ints(bench.records()).values()) == {1}


def remove_finished(node: LocalCassandra, which: Callable[[str], bool]) -> set[int]:
    """Delete finished segments of cdc_raw with their indexes, those of these names; their ids."""
    indexes = [path for path in node.cdc_raw.glob("*_cdc.idx") if b"COMPLETED" in path.read_bytes()]
    names = {index: index.name.replace("_cdc.idx", ".log") for index in indexes}
    chosen = {index: name for index, name in names.items() if which(name)}
    for index, name in chosen.items():
        (node.cdc_raw / name).unlink()
        index.unlink()
    return {number(node.cdc_raw / name) for name in chosen.values()}
