"""Turns lines that Java writes on stderr beside its log, such as its own warnings, into lines of the log."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, TextIO

log: Final = logging.getLogger("tailrace_spark.java")

# As log4j2-human.properties has them.
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z ")


def pass_on(descriptor: int, stream: TextIO, *, json_lines: bool) -> None:
    """Write the lines of a descriptor that are of this log to a stream as they are, and log all others; to its end."""
    is_of_log = _is_json if json_lines else _has_time
    with open(descriptor, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if is_of_log(line):
                stream.write(line if line.endswith("\n") else f"{line}\n")
                stream.flush()
            elif line.strip():
                log.warning("%s", line.strip())


@contextmanager
def logged_stderr(stream: TextIO, *, json_lines: bool) -> Iterator[int]:
    """A descriptor for a process that is started inside, to write on: `pass_on` has its lines, in a thread."""
    reading, writing = os.pipe()
    passing = partial(pass_on, reading, stream, json_lines=json_lines)
    threading.Thread(target=passing, name="java-stderr", daemon=True).start()
    try:
        yield writing
    finally:
        os.close(writing)


def _has_time(line: str) -> bool:
    return _TIME.match(line) is not None


def _is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
