"""Log lines: fields, JSON, secrets."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tailrace_common.cli.logs import PACKAGES, about, carried, set_up_logging


@dataclass(frozen=True, slots=True)
class Place:
    epoch: int
    segment: int


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    root.handlers.clear()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in PACKAGES:
        logging.getLogger(name).setLevel(logging.NOTSET)


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
