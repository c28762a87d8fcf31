"""Logging for people or machines: one line an event, numbers as fields, secrets taken out."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Final, ParamSpec, TextIO, TypeVar

from tailrace_common.secrets import REDACTED, is_secret_name, redact

SECONDS: Final = 60.0
_MOST: Final = 1000
# The packages whose loggers we set up; a library's own lines pass from `warning` on.
PACKAGES: Final = ("tailrace", "tailrace_schemas", "tailrace_common", "tailrace_spark", "tailrace_server")
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_SUBJECT: Final[ContextVar[tuple[str, str] | None]] = ContextVar("subject", default=None)
P = ParamSpec("P")
R = TypeVar("R")


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


@contextmanager
def about(name: str, value: str) -> Iterator[None]:
    """While inside, lines of this thread, and of calls that are `carried`, have this field, unless they name it."""
    token = _SUBJECT.set((name, value))
    try:
        yield
    finally:
        _SUBJECT.reset(token)


def carried(call: Callable[P, R]) -> Callable[P, R]:
    """The call for another thread, whose lines are then about what the lines here are."""
    context = copy_context()

    def in_context(*args: P.args, **kwargs: P.kwargs) -> R:
        return context.copy().run(call, *args, **kwargs)

    return in_context


def _name_subject(record: logging.LogRecord) -> bool:
    """Let every record pass."""
    subject = _SUBJECT.get()
    if subject is not None and subject[1] not in record.getMessage():
        setattr(record, *subject)
    return True


class _Handler(logging.StreamHandler[TextIO]):
    """Leaves out what a library repeats within a minute, as a driver that reconnects each second does."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._repeats = Repeats(PACKAGES)

    def emit(self, record: logging.LogRecord) -> None:
        """Write it, unless it is left out."""
        to_write = self._repeats.kept(record)
        if to_write is not None:
            super().emit(to_write)


def set_up_logging(level: str, *, json_lines: bool, stream: TextIO) -> None:
    """Send our packages' log from `level` on, and everybody's warnings, to `stream`. Replaces an earlier set-up.

    What libraries repeat, and stack traces that repeat, come once a minute; all of them at the level debug.
    """
    handler = logging.StreamHandler(stream) if level.lower() == "debug" else _Handler(stream)
    handler.setFormatter(JsonFormatter() if json_lines else HumanFormatter())
    handler.addFilter(_name_subject)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for package in PACKAGES:
        logging.getLogger(package).setLevel(level.upper())


def logs_json() -> bool:
    """Whether the log is JSON lines, as it was set up."""
    return any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger().handlers)


def fields(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    """What the caller gave as `extra`, flat: a dataclass, such as a position, gives one field for each of its own."""
    for name, value in vars(record).items():
        if name in _STANDARD:
            continue
        if is_secret_name(name):
            yield name, REDACTED
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield from ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        else:
            yield name, value


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, bool | int | float) else redact(str(value))


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC, ISO 8601), level, logger, message, the fields, and `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": _time(record).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()),
        }
        entry.update((name, _plain(value)) for name, value in fields(record) if name not in entry)
        if record.exc_info:
            entry["exception"] = redact(_trace(self, record))
        return json.dumps(entry, ensure_ascii=False)


class HumanFormatter(logging.Formatter):
    """Time (UTC), level, logger, message, then the fields as name=value; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        extra = " ".join(f"{name}={_plain(value)}" for name, value in fields(record))
        time = _time(record).strftime("%Y-%m-%d %H:%M:%S.") + f"{int(record.msecs):03d}Z"
        line = f"{time} {record.levelname.lower():<8} {record.name}: {redact(record.getMessage())}"
        if extra:
            line += f"  {extra}"
        return f"{line}\n{redact(_trace(self, record))}" if record.exc_info else line


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """The traceback of our own code; of a library's, the error alone: what it means we say ourselves."""
    if record.exc_info is None or record.exc_info[1] is None:
        return ""
    if record.name.partition(".")[0] in PACKAGES:
        return formatter.formatException(record.exc_info)
    return f"{type(record.exc_info[1]).__name__}: {record.exc_info[1]}"


def _time(record: logging.LogRecord) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(record.created, datetime.UTC)
