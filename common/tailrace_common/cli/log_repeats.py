"""Lines that come again and again: a library's once a minute, and a stack trace of ours once a minute."""

from __future__ import annotations

import copy
import logging
from collections import OrderedDict
from typing import Final

SECONDS: Final = 60.0
_MOST: Final = 1000


class Repeats:
    """Decides by records' own times. `own` are the packages whose every line is kept; only their traces are cut."""

    def __init__(self, own: tuple[str, ...]) -> None:
        self._own = own
        self._last: OrderedDict[tuple[object, ...], tuple[float, int]] = OrderedDict()

    def kept(self, record: logging.LogRecord) -> logging.LogRecord | None:
        """The record, or a copy that says how often it was left out, or has no trace; None to leave it out."""
        is_own = record.name.partition(".")[0] in self._own
        if is_own and record.exc_info is None:
            return record
        key = (record.name, record.levelno, record.msg, *_subject(record))
        last_time, left_out = self._last.get(key, (-SECONDS, 0))
        if record.created - last_time < SECONDS:
            self._note(key, last_time, left_out + 1)
            return _without_trace(record) if is_own else None
        self._note(key, record.created, 0)
        return record if is_own or not left_out else _with_count(record, left_out)

    def _note(self, key: tuple[object, ...], shown_at: float, left_out: int) -> None:
        self._last[key] = shown_at, left_out
        self._last.move_to_end(key)
        if len(self._last) > _MOST:
            self._last.popitem(last=False)


def _subject(record: logging.LogRecord) -> tuple[object, ...]:
    """What the line is about: a host, say; numbers behind it differ each time. Of an exception, its kind."""
    first = str(record.args[0]) if isinstance(record.args, tuple) and record.args else None
    return first, record.exc_info[0] if record.exc_info else None


def _without_trace(record: logging.LogRecord) -> logging.LogRecord:
    cut = copy.copy(record)
    cut.exc_info = cut.exc_text = None
    return cut


def _with_count(record: logging.LogRecord, left_out: int) -> logging.LogRecord:
    counted = copy.copy(record)
    counted.msg, counted.args = f"{record.getMessage()} ({left_out} more like it since the last)", None
    return counted
