"""Log lines: fields, JSON, secrets."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
from dataclasses import dataclass

import pytest

from tailrace_common.cli.logs import SECONDS, Repeats, about, carried, set_up_logging

RECONNECT = "Error attempting to reconnect to %s, scheduling retry in %s seconds: %s"


@dataclass(frozen=True, slots=True)
class Place:
    epoch: int
    segment: int


def log_to(*, json_lines: bool, level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    set_up_logging(level, json_lines=json_lines, stream=stream)
    return stream


def test_positions_become_fields() -> None:
    stream = log_to(json_lines=True)
    logging.getLogger("tailrace.capture").info("published %d", 7, extra={"position": Place(1, 2), "host": "h"})
    line = json.loads(stream.getvalue())
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "tailrace.capture",
        "message": "published 7",
        "epoch": 1,
        "segment": 2,
        "host": "h",
    }


def test_people_get_one_line() -> None:
    stream = log_to(json_lines=False)
    logging.getLogger("tailrace.capture").info("published", extra={"position": Place(1, 2)})
    time, _, rest = stream.getvalue().partition("Z ")
    assert len(time) == len("2026-01-01 00:00:00.000")
    assert rest == "info     tailrace.capture: published  epoch=1 segment=2\n"


@pytest.mark.parametrize("json_lines", [False, True])
def test_secrets_are_taken_out(json_lines: bool) -> None:
    stream = log_to(json_lines=json_lines)
    logger = logging.getLogger("tailrace.publish")
    logger.info("to postgresql://u:hunter2@h/d with sasl.password=hunter2", extra={"password": "hunter2"})
    try:
        raise ValueError("password = 'hunter2'")
    except ValueError:
        logger.exception("failed")
    assert stream.getvalue().count("\n") >= 2
    assert "hunter2" not in stream.getvalue()
    assert "ValueError" in stream.getvalue()


def test_levels() -> None:
    stream = log_to(json_lines=False, level="error")
    logging.getLogger("tailrace.x").warning("ours")
    logging.getLogger("cassandra").warning("theirs")
    logging.getLogger("cassandra").info("chatter")
    assert "ours" not in stream.getvalue()
    assert "theirs" in stream.getvalue()
    assert "chatter" not in stream.getvalue()


def test_lines_say_what_they_are_about_in_threads_that_are_started_for_it_too() -> None:
    stream = log_to(json_lines=True)
    log = logging.getLogger("tailrace_spark")
    with about("subscription", "shop.orders/w"):
        log.info("batch 1")
        named, other = carried(log.info), threading.Thread(target=log.info, args=("of the worker",))
    threads = [threading.Thread(target=named, args=(f"batch {number}",)) for number in (2, 3)]
    for thread in (*threads, other):
        thread.start()
        thread.join()
    log.info("of nobody")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["message"], line.get("subscription")) for line in lines] == [
        ("batch 1", "shop.orders/w"), ("batch 2", "shop.orders/w"), ("batch 3", "shop.orders/w"),
        ("of the worker", None), ("of nobody", None),
    ]  # fmt: skip


def test_a_line_that_names_what_it_is_about_does_not_name_it_twice() -> None:
    stream = log_to(json_lines=False)
    with about("subscription", "shop.orders/w"):
        logging.getLogger("tailrace_server").info("shop.orders/w shares the reading of its topics")
        logging.getLogger("tailrace_spark").info("batch 1: 3 records")
    first, second = stream.getvalue().splitlines()
    assert first.endswith(": shop.orders/w shares the reading of its topics")
    assert second.endswith("batch 1: 3 records  subscription=shop.orders/w")


def test_calls_that_are_carried_may_overlap() -> None:
    stream = log_to(json_lines=True)
    log, inside, go = logging.getLogger("tailrace_spark"), threading.Event(), threading.Event()

    def wait() -> None:
        inside.set()
        assert go.wait(60)
        log.info("first")

    with about("subscription", "a/b"):
        first, second = carried(wait), carried(log.info)
    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(60)
    second("second")
    go.set()
    thread.join()
    assert [json.loads(line)["subscription"] for line in stream.getvalue().splitlines()] == ["a/b", "a/b"]


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
