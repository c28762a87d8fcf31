"""Damaged files in cdc_raw: what is damaged is read up to the damage and kept, everything else goes on."""

from __future__ import annotations

import signal
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
from tests.integration.agents import AgentProcess
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
