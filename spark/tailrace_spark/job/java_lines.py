"""Turns lines that Java writes on stderr beside its log, such as its own warnings, into lines of a JSON log."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

log: Final = logging.getLogger("tailrace_spark.java")


def pass_on(descriptor: int, stream: TextIO) -> None:
    """Write the JSON lines of a descriptor to a stream as they are, and log all others; until its end."""
    with open(descriptor, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if _is_json(line):
                stream.write(line if line.endswith("\n") else f"{line}\n")
                stream.flush()
            elif line.strip():
                log.warning("%s", line.strip())


@contextmanager
def json_stderr(stream: TextIO) -> Iterator[int]:
    """A descriptor for a process that is started inside, to write on: `pass_on` has its lines, in a thread."""
    reading, writing = os.pipe()
    threading.Thread(target=pass_on, args=(reading, stream), name="java-stderr", daemon=True).start()
    try:
        yield writing
    finally:
        os.close(writing)


def _is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
