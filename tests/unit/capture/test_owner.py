"""One agent for a cdc_raw: its lock ends with it, its mark does not."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tailrace.capture.owner import Owner, own, read_owner, this_agent
from tailrace.segments.files import OWNER_MARK, list_segments
from tailrace_common.locks import is_locked
from tailrace_schemas.errors import FencedError, SettingsError

OURS = this_agent("shop", "h1", "127.0.0.1:9092", transactional=True, now=0.0)
OTHER = replace(OURS, prefix="audit")


def at_once(_: float) -> None:
    """No waiting for who looks at the lock."""


@pytest.mark.promise("agent.one-per-directory", "agent.at-least-once")
@pytest.mark.parametrize(
    "second",
    [
        pytest.param(OTHER, id="another prefix"),
        pytest.param(replace(OURS, host="h2"), id="another host"),
        pytest.param(replace(OURS, kafka="127.0.0.1:9093"), id="another Kafka, which fences nobody here"),
        pytest.param(replace(OURS, transactional=False), id="without transactions nobody is fenced"),
    ],
)
def test_a_directory_has_one_agent_at_a_time(tmp_path: Path, second: Owner) -> None:
    with own(tmp_path, OURS):
        assert is_locked(tmp_path)
        with pytest.raises(
            FencedError, match=r"another agent reads .*the agent with topics\.prefix = \"shop\" of host h1"
        ):
            own(tmp_path, second, take_over=True, wait=at_once)
        assert read_owner(tmp_path) == OURS
    assert not is_locked(tmp_path)


def test_the_same_agent_takes_it_over_after_any_end(tmp_path: Path) -> None:
    """Its mark is still there, of another process on another machine's name."""
    with own(tmp_path, replace(OURS, pid=1, hostname="pod-1", kafka="10.0.0.1:9092")):
        pass
    with own(tmp_path, OURS) as ownership:
        assert ownership.taken_from is None
        assert read_owner(tmp_path) == OURS


@pytest.mark.promise("agent.one-per-directory")
@pytest.mark.parametrize("other", [OTHER, replace(OURS, host="h2")], ids=["prefix", "host"])
def test_what_a_stopped_agent_has_not_published_is_its_own(tmp_path: Path, other: Owner) -> None:
    with own(tmp_path, other):
        pass
    with pytest.raises(SettingsError, match=r"is owned by the agent with .*--take-over"):
        own(tmp_path, OURS, wait=at_once)
    assert not is_locked(tmp_path)
    assert read_owner(tmp_path) == other
    with own(tmp_path, OURS, take_over=True, wait=at_once) as ownership:
        assert ownership.taken_from == other
        assert read_owner(tmp_path) == OURS


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1, "prefix": "shop"}'])
def test_a_mark_that_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / OWNER_MARK).write_text(text)
    with pytest.raises(SettingsError, match=r"\.tailrace-owner: .*--take-over"):
        own(tmp_path, OURS, wait=at_once)
    with own(tmp_path, OURS, take_over=True, wait=at_once):
        assert read_owner(tmp_path) == OURS


@pytest.mark.promise("agent.one-per-directory")
def test_a_mark_of_a_later_format_is_nobodys_own(tmp_path: Path) -> None:
    """Whatever it says of prefix and host: the rest of it may mean something else."""
    with own(tmp_path, OURS):
        pass
    mark = tmp_path / OWNER_MARK
    later = json.dumps({**json.loads(mark.read_text()), "version": 2})
    mark.write_text(later)
    with pytest.raises(SettingsError, match=r"\.tailrace-owner was written by another version .*--take-over"):
        own(tmp_path, OURS, wait=at_once)
    assert mark.read_text() == later
    assert not is_locked(tmp_path)
    with own(tmp_path, OURS, take_over=True, wait=at_once):
        assert read_owner(tmp_path) == OURS


def test_a_mark_that_cannot_be_read_is_no_reason_to_take_over(tmp_path: Path) -> None:
    """It says something, to whoever may read it."""
    (tmp_path / OWNER_MARK).mkdir()
    with pytest.raises(SettingsError, match=r"cannot be read: Is a directory; let this user read it$"):
        read_owner(tmp_path)


def test_a_newer_agent_comes_in_beside_the_older_that_kafka_fences(tmp_path: Path) -> None:
    """It has the lock, and its own mark, once the older one has ended."""
    older = own(tmp_path, replace(OURS, pid=1))
    with own(tmp_path, OURS, wait=at_once, poll_seconds=0.01) as newer:
        older.close()
        newer.join(60)
        assert read_owner(tmp_path) == OURS
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)


@pytest.mark.promise("agent.one-per-directory")
@pytest.mark.parametrize(
    ("old", "new", "says"),
    [("shop", "audit", 'topics.prefix = "audit"'), ('"version": 1', '"version": 2', "by another version")],
    ids=["another prefix", "a later format"],
)
def test_a_newer_agent_ends_when_another_one_was_faster(tmp_path: Path, old: str, new: str, says: str) -> None:
    words: list[str] = []
    told = threading.Event()

    def lost(reason: str) -> None:
        words.append(reason)
        told.set()

    older = own(tmp_path, OURS)
    with own(tmp_path, OURS, lost=lost, wait=at_once, poll_seconds=0.01):
        whole = tmp_path / "whole"  # who polls must not read a part of it
        whole.write_text((tmp_path / OWNER_MARK).read_text().replace(old, new))
        whole.replace(tmp_path / OWNER_MARK)
        assert told.wait(60)
    older.close()
    assert says in words[0]


def test_the_mark_is_no_segment_and_no_foreign_file(tmp_path: Path) -> None:
    with own(tmp_path, OURS):
        listing = list_segments(tmp_path)
    assert (listing.segments, listing.foreign) == ((), ())


def test_who_looks_at_the_lock_keeps_no_agent_away(tmp_path: Path) -> None:
    """`is_locked` has the lock for an instant."""
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    with own(tmp_path, OURS, wait=lambda _: fcntl.flock(descriptor, fcntl.LOCK_UN)):
        pass
    os.close(descriptor)
