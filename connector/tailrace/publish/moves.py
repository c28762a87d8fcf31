"""Moves of a host's published position by hand: what the offsets record becomes, and what a move means."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from tailrace.state import Quarantined, Resume, SegmentKey
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.position import Position

_TARGET: Final = re.compile(r"(?:(\d{1,9})/)?(\d{1,19})(?::(\d{1,10}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Between:
    """What lies between two positions, as far as files tell. `segments` are ids of files that hold some of it.

    `whole` is false where segments of the stretch are gone, or could not be read to the end.
    """

    mutations: int
    segments: tuple[int, ...]
    whole: bool


def target_of(text: str, current: Position) -> Position:
    """The position that a person wrote as [EPOCH/]SEGMENT[:OFFSET]; without offset, the segment's beginning.

    Raises SettingsError for anything else, and for another log epoch than that of `current`: files of another log
    are not there to be read.
    """
    match = _TARGET.fullmatch(text)
    if match is None:
        raise SettingsError(f"{text}: a position is [EPOCH/]SEGMENT[:OFFSET], such as {current}")
    epoch = current.epoch if match[1] is None else int(match[1])
    # Segment ids of another log mean nothing here, and its files may be gone (contracts.md 1, "Log epoch").
    if epoch != current.epoch:
        raise SettingsError(
            f"{text}: the host is in log epoch {current.epoch}, and a position stays in its log; "
            "`tailrace offsets adopt --new-log` opens the next epoch"
        )
    return Position(epoch, int(match[2]), int(match[3] or 0))


def moved(resume: Resume, target: Position, present: Iterable[SegmentKey]) -> Resume:
    """The record with its position at `target`. `present` are the segments in cdc_raw, by id and header checksum.

    Those at or below the target count as read from now on, as contracts.md 1 asks of `open`. Else they would be taken
    for another log's. Places quarantined in the target's segment or behind it are forgotten, so that they are read.
    What is gone by now was published, or told of with this move: none of it is reported as missing later.
    """
    current = resume.position or target
    between = ((target.segment + 1, current.segment),) if target.segment < current.segment else ()
    passed = {segment: checksum for segment, checksum in present if segment <= target.segment}
    return replace(
        resume,
        position=target,
        open=tuple(sorted((passed | dict(resume.open)).items())),
        quarantined=tuple(quarantined for quarantined in resume.quarantined if quarantined.segment < target.segment),
        unread=tuple((max(a, target.segment + 1), b) for a, b in resume.unread if b > target.segment),
        reported=(*resume.reported, *between),
    )


def adopted(resume: Resume) -> Resume:
    """The record with which the next log epoch opens: no segment of the new log counts as read, whatever its id.

    Raises SettingsError where nothing was ever read: then there is no other log.
    """
    position = resume.position
    if position is None:
        raise SettingsError("this host has no position yet: its agent starts with any log")
    # What the record says of segments is of the old log's; the new one may use the same ids ("Log epoch").
    return replace(
        resume,
        position=Position(position.epoch + 1, -1, 0),
        open=(),
        quarantined=(),
        schema=None,
        truncations=(),
        unread=(),
        reported=(),
    )


def restored(position: Position, present: Iterable[SegmentKey], aside: Iterable[SegmentKey]) -> Resume:
    """The record of a host whose record was deleted: all up to `position` is published.

    `present` are the segments that the node has, in cdc_raw and in its commit log, by id and header checksum. Those of
    `aside` may have mutations that are not published, though they are below the position: they are kept, and read no
    more.
    """
    reason = "its record was deleted from Kafka, and may have named mutations of it that are parked, or damage"
    return Resume(
        position,
        tuple(sorted({segment: checksum for segment, checksum in present if segment <= position.segment}.items())),
        tuple(Quarantined(segment, checksum, 0, reason) for segment, checksum in aside if segment < position.segment),
        schema=position,
    )


def position_words(position: Position | None) -> str:
    """A position for people: that of an epoch in which nothing was read yet has no segment."""
    if position is None:
        return "the first segment"
    return f"{position.epoch}/start" if position.segment < 0 else str(position)


def move_words(host: str, before: Position, after: Position, between: Between | None) -> str:
    """What the move of a host's position means. `between` is None where no file could be looked at."""
    if after == before:
        return f"host {host} is at {before} already"
    back = after < before
    direction = "back" if back else "forward"
    if between is None:
        mutations = "the mutations in between (not counted: cdc_raw is not at hand)"
    else:
        least = "" if between.whole else "at least "
        mutations = f"{least}{_many(between.mutations, 'mutation')} in {_many(len(between.segments), 'segment')}"
    if back:
        means = f"{mutations}, of all tables, are read again: their changes are published a second time (duplicates)"
        if between is not None and not between.whole:
            means += "; what is gone from cdc_raw is not"
    else:
        means = f"{mutations}, of all tables, are never published (a gap), and their finished segments are deleted"
    return f"host {host} goes {direction} from {position_words(before)} to {position_words(after)}: {means}"


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
