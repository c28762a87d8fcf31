"""`tailrace tail --schema-changes`: DDL and truncations as lines, one copy of those that several hosts tell of."""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, datetime, timedelta
from typing import Final

from rich.console import Console
from rich.text import Text

from tailrace.history.events import EventError, EventKind, SchemaEvent, decode_event, event_object
from tailrace_common.cli.console import on_terminal, print_json, say
from tailrace_common.kafka import Record

_BEGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_COPIES: Final = 10_000
_STYLES: Final = {EventKind.CREATED: "green", EventKind.ALTERED: "cyan"}


class EventLines:
    """Shows events, and none of the last `most` a second time; `left_out` counts the records that are none."""

    def __init__(self, most: int = _MOST_COPIES) -> None:
        self._console = Console(markup=False, highlight=False) if on_terminal() else None
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._most = most
        self.left_out = 0

    def show(self, record: Record) -> bool:
        """Print it; whether that was done: a copy of one that was shown is not shown again."""
        try:
            host, event = decode_event(record.value or b"")
        except EventError as error:
            self.left_out += 1
            say(f"offset {record.offset}: not decoded: {error}")
            return False
        if event.digest in self._known:
            return False
        self._known[event.digest] = None
        if len(self._known) > self._most:
            self._known.popitem(last=False)
        if self._console is None:
            print_json({"offset": record.offset, **event_object(record.value or b"")})
        else:
            self._console.print(Text(event_words(host, event), style=_STYLES.get(event.kind, "red")), soft_wrap=True)
        return True


def event_words(host: str, event: SchemaEvent) -> str:
    """The line of an event: when, what, and where it was read first."""
    try:
        when = (_BEGIN + timedelta(microseconds=event.written)).strftime("%Y-%m-%d %H:%M:%S.%fZ")
    except OverflowError:
        when = f"{event.written} us"
    text = f"{when} {event}{' (concluded, not read)' if event.inferred else ''} [{host} {event.position}]"
    return "".join(character if character.isprintable() else "?" for character in text)
