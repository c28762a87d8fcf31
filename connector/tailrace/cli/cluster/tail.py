"""`tailrace tail`: a table's changes, or all DDL, from their topic as they come."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from functools import partial
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from tailrace.cli.support.options import topic_of
from tailrace.cluster import LiveCluster
from tailrace.history.events import EventError, EventKind, SchemaEvent, decode_event, event_object
from tailrace_common.cli.console import on_terminal, print_json, say
from tailrace_common.cli.options import SettingsFile, settings_of
from tailrace_common.cli.signals import stopped_by_signals
from tailrace_common.kafka import Record, TopicReader
from tailrace_common.properties.passthrough import Scalar
from tailrace_common.settings import Settings
from tailrace_common.topics import SchemaReader, why_unpublished
from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.avro.decode import reader_of
from tailrace_schemas.change import Change
from tailrace_schemas.change_json import ChangeForms, change_words, time_words
from tailrace_schemas.errors import DecodeError, ServiceError, SettingsError
from tailrace_schemas.topics import Internal, internal_topic

_MOST_COPIES: Final = 10_000
_EVENT_STYLES: Final = {EventKind.CREATED: "green", EventKind.ALTERED: "cyan"}
_POLL_SECONDS: Final = 0.5
_LEFT_OUT: Final = 3
_STYLES: Final = {"insert": "green", "update": "cyan", "read": "dim"}


def tail(
    table: Annotated[
        str | None, typer.Argument(metavar="KEYSPACE.TABLE", help="The table.", show_default=False)
    ] = None,
    config: SettingsFile = None,
    schema_changes: Annotated[
        bool, typer.Option("--schema-changes", help="Follow DDL and truncations of all tables instead.")
    ] = False,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Begin with the oldest change of the topic.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option("--max", min=1, metavar="N", help="Stop after this many changes.", show_default=False)
    ] = None,
) -> None:
    """Follow a table's topic: one line per committed change, until Ctrl-C.

    JSON lines when piped: table, partition and offset, then the change as docs/change-json.md
    says. Every replica's copy of a change is shown; of a schema change one (docs/contracts.md 1).
    It needs neither a schema registry nor Spark. Exit code 3 when a record could not be decoded.

    Example: tailrace tail shop.orders --from-beginning --max 10
    """
    settings = settings_of(config)
    if schema_changes == (table is not None):
        raise SettingsError("tail: name one table, or give --schema-changes")
    kafka = settings.kafka.reveal()
    if table is None:
        _follow_events(kafka, internal_topic(settings.topics.prefix, Internal.SCHEMA_CHANGES), from_beginning, limit)
        return
    with stopped_by_signals(), SchemaReader(kafka, settings.topics.prefix) as schemas:
        schemas.refresh()
        topic = published_topic(schemas.values(), table, settings.topics.prefix, partial(_cdc_by_name, settings))
        with TopicReader(kafka, topic, beginning=from_beginning) as reader:
            say(f"following {topic}; Ctrl-C ends it")
            follower = _Follower(schemas)
            with suppress(KeyboardInterrupt):
                _follow(reader, follower.show, limit)
    if follower.left_out:
        raise typer.Exit(_LEFT_OUT)


def published_topic(
    entries: Iterable[SchemaEntry], table: str, prefix: str, cdc_by_name: Callable[[], Mapping[str, bool]]
) -> str:
    """The topic of a table. Raises SettingsError, which says why there is none, where Cassandra answers.

    `cdc_by_name` asks for the tables of Cassandra, and whether with cdc; it may raise ServiceError.
    """
    try:
        return topic_of(entries, table, prefix)
    except SettingsError as error:
        try:
            why = why_unpublished(table, cdc_by_name())
        except ServiceError:
            raise error from None
        raise SettingsError(f"{table}: {why.reason}; {why.action}") from None


def _cdc_by_name(settings: Settings) -> dict[str, bool]:
    with closing(LiveCluster(settings.cluster)) as cluster:
        return {str(existing): existing.cdc for existing in cluster.definitions().tables}


def _follow_events(kafka: Mapping[str, Scalar], topic: str, from_beginning: bool, limit: int | None) -> None:
    lines = EventLines()
    with stopped_by_signals(), TopicReader(kafka, topic, beginning=from_beginning) as reader:
        say(f"following {topic}; Ctrl-C ends it")
        with suppress(KeyboardInterrupt):
            _follow(reader, lambda _, record: lines.show(record), limit)
    if lines.left_out:
        raise typer.Exit(_LEFT_OUT)


def _follow(reader: TopicReader, show: Callable[[int, Record], bool], limit: int | None) -> None:
    """Until so many records were shown; None: for ever."""
    count = 0
    while count != limit:
        polled = reader.poll(_POLL_SECONDS)
        if polled is not None and polled[1].value is not None:  # else it is there for its transaction's mark
            count += show(*polled)


class _Follower:
    """Prints changes as they come. `left_out` counts the records that could not be decoded."""

    def __init__(self, schemas: SchemaReader) -> None:
        self._schemas = schemas
        self._forms = ChangeForms()
        self._console = Console(markup=False, highlight=False) if on_terminal() else None
        self.left_out = 0

    def show(self, partition: int, record: Record) -> bool:
        """Print a record; whether it could be decoded."""
        try:
            entry, fields = self._schemas.decoded(record.value or b"")
            change = reader_of(entry).change(fields)
        except DecodeError as error:
            self.left_out += 1
            say(f"partition {partition}, offset {record.offset}: not decoded: {error}")
            return False
        if self._console is None:
            print_json(line(self._forms, partition, record.offset, change))
        else:
            text = Text(change_words(entry.table, fields), style=_STYLES.get(fields["op"], "red"))
            self._console.print(text, soft_wrap=True)
        return True


def line(forms: ChangeForms, partition: int, offset: int, change: Change) -> dict[str, object]:
    """The JSON object of a change, its place behind its table (docs/change-json.md)."""
    value = forms.of(change.table).write(change)
    return {"table": value.pop("table"), "partition": partition, "offset": offset, **value}


class EventLines:
    """Shows events, and none of the last `copies` a second time; `left_out` counts the records that are none."""

    def __init__(self, copies: int = _MOST_COPIES) -> None:
        self._console = Console(markup=False, highlight=False) if on_terminal() else None
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._copies = copies
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
        if len(self._known) > self._copies:
            self._known.popitem(last=False)
        if self._console is None:
            print_json({"offset": record.offset, **event_object(record.value or b"")})
        else:
            self._console.print(
                Text(event_words(host, event), style=_EVENT_STYLES.get(event.kind, "red")), soft_wrap=True
            )
        return True


def event_words(host: str, event: SchemaEvent) -> str:
    """The line of an event: when, what, and where it was read first."""
    concluded = " (concluded, not read)" if event.inferred else ""
    text = f"{time_words(event.written)} {event}{concluded} [{host} {event.position}]"
    return "".join(character if character.isprintable() else "?" for character in text)
