"""What is logged once a minute, and what every time."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator

import pytest

from tailrace_common.cli.log_repeats import SECONDS, Repeats
from tailrace_common.cli.logs import set_up_logging

RECONNECT = "Error attempting to reconnect to %s, scheduling retry in %s seconds: %s"


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root, package = logging.getLogger(), logging.getLogger("tailrace")
    handlers, level, own = list(root.handlers), root.level, package.level
    yield
    root.handlers[:], root.level, package.level = handlers, level, own


def record(at: float, *args: object, name: str = "cassandra.pool", msg: str = RECONNECT) -> logging.LogRecord:
    made = logging.LogRecord(name, logging.WARNING, "f", 1, msg, args, None)
    made.created = at
    return made


def failed(at: float, name: str) -> logging.LogRecord:
    made = record(at, name=name, msg="no connection")
    try:
        raise OSError("gone")
    except OSError:
        made.exc_info = sys.exc_info()
    return made


@pytest.mark.promise("commands.repeated-lines")
def test_a_driver_that_reconnects_each_second_is_heard_once_a_minute() -> None:
    repeats = Repeats(("tailrace",))
    lines = []
    for second in range(int(3 * SECONDS)):
        kept = repeats.kept(record(float(second), "10.0.0.1:9042", second / 7, "refused"))
        lines += [] if kept is None else [kept.getMessage()]
    assert len(lines) == 3
    assert lines[0].endswith("refused")
    assert lines[1].endswith(": refused (59 more like it since the last)")


def test_other_hosts_and_other_lines_are_others() -> None:
    repeats = Repeats(("tailrace",))
    assert repeats.kept(record(0, "a", 1, "x")) is not None
    assert repeats.kept(record(1, "b", 1, "x")) is not None
    assert repeats.kept(record(1, "a", msg="Host %s is down")) is not None
    assert repeats.kept(record(1, "a", 2, "x")) is None


@pytest.mark.promise("commands.repeated-lines")
def test_behind_as_many_lines_as_are_remembered_the_next_ones_are_left_out_too() -> None:
    repeats = Repeats(("tailrace",))
    for number in range(1_100):
        line = record(0, f"host {number}", 1, "x")
        assert [repeats.kept(line) is not None for _ in range(2)] == [True, False]
    assert repeats.kept(record(0, "host 0", 1, "x")) is not None


@pytest.mark.promise("commands.repeated-lines")
def test_our_own_lines_all_come_and_their_traces_once_a_minute() -> None:
    repeats = Repeats(("tailrace",))
    kept = [repeats.kept(failed(at, "tailrace.agent")) for at in (0.0, 1.0, SECONDS + 1)]
    assert [one is not None and one.exc_info is not None for one in kept] == [True, False, True]
    plain = record(0, name="tailrace.agent", msg="waiting")
    assert [repeats.kept(plain) for _ in range(3)] == [plain] * 3


def test_a_librarys_traces_are_lines_like_others() -> None:
    repeats = Repeats(("tailrace",))
    assert [repeats.kept(failed(at, "cassandra.cluster")) is not None for at in (0.0, 1.0)] == [True, False]


@pytest.mark.parametrize(("level", "lines"), [("info", 1), ("debug", 5)])
def test_at_debug_everything_is_logged(level: str, lines: int) -> None:
    stream = io.StringIO()
    set_up_logging(level, json_lines=False, stream=stream)
    for second in range(5):
        logging.getLogger("cassandra.pool").warning(RECONNECT, "10.0.0.1:9042", second, "refused")
    assert len(stream.getvalue().splitlines()) == lines
