"""`tailrace tail`: a table's changes from its topic, decoded by the published schemas, as they come."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from tailrace.cli.change_words import words
from tailrace.cli.console import on_terminal, print_json, say
from tailrace.cli.interruption import stopped_by_signals
from tailrace.cli.options import SettingsFile, settings_of
from tailrace.cli.segment_formats import plain
from tailrace_common.kafka import TopicReader
from tailrace_common.schemas import SchemaReader
from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.avro.decode import message_schema_id, reader_of
from tailrace_schemas.errors import CorruptError, DecodeError, SettingsError

_POLL_SECONDS: Final = 0.5
_LEFT_OUT: Final = 3
_STYLES: Final = {"insert": "green", "update": "cyan", "read": "dim"}


def tail(
    table: Annotated[str, typer.Argument(metavar="KEYSPACE.TABLE", help="The table.", show_default=False)],
    config: SettingsFile = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="All changes that the topic still has, then new ones.")
    ] = False,
    most: Annotated[
        int | None, typer.Option("--max", min=1, metavar="N", help="End after so many changes.", show_default=False)
    ] = None,
) -> None:
    """Follow a table's topic: one line per committed change, until Ctrl-C.

    JSON lines when piped: table, partition and offset, then the record as docs/contracts.md 3 has it, bytes as
    hexadecimal digits. Of several replicas every copy is shown. No schema registry and no Spark needed. Exit code 3
    when a record could not be decoded.

    Example: tailrace tail shop.orders --from-beginning --max 10
    """
    settings = settings_of(config)
    kafka = settings.kafka.reveal()
    with stopped_by_signals(), SchemaReader(kafka, settings.topics.prefix) as schemas:
        try:
            schemas.refresh()
            topic = topic_of(schemas.values(), table, settings.topics.prefix)
            with TopicReader(kafka, topic, beginning=from_beginning) as reader:
                say(f"following {topic}; Ctrl-C ends it")
                left_out = _follow(reader, schemas, most)
        except KeyboardInterrupt:
            return
    if left_out:
        raise typer.Exit(_LEFT_OUT)


def topic_of(entries: Iterable[SchemaEntry], table: str, prefix: str) -> str:
    """The topic of a table by the last schema announced for its name. Raises SettingsError where there is none."""
    topics = {str(entry.table): entry.topic for entry in sorted(entries, key=lambda entry: entry.announced)}
    if table in topics:
        return topics[table]
    nearest = difflib.get_close_matches(table, topics, n=1)
    known = f"did you mean {nearest[0]}?" if nearest else f"there are: {', '.join(sorted(topics)) or 'none'}"
    raise SettingsError(f"{table}: no agent publishes such a table under the prefix {prefix}; {known}")


def _follow(reader: TopicReader, schemas: SchemaReader, most: int | None) -> int:
    """Print changes until `most` of them were there; how many records could not be decoded."""
    shown = left_out = 0
    console = Console(markup=False, highlight=False) if on_terminal() else None
    for partition, offset, value in _values(reader):
        try:
            entry, record = _decoded(value, schemas)
        except DecodeError as error:
            left_out += 1
            say(f"partition {partition}, offset {offset}: not decoded: {error}")
            continue
        if console is None:
            print_json(line(entry, partition, offset, record))
        else:
            style = _STYLES.get(record["op"], "red")
            console.print(Text(words(entry.table, record), style=style), soft_wrap=True)
        shown += 1
        if shown == most:
            break
    return left_out


def _values(reader: TopicReader) -> Iterator[tuple[int, int, bytes]]:
    while True:
        found = reader.poll(_POLL_SECONDS)
        if found is not None:
            partition, record = found
            yield partition, record.offset, record.value or b""


def _decoded(value: bytes, schemas: SchemaReader) -> tuple[SchemaEntry, dict[str, Any]]:
    identity = message_schema_id(value)
    try:
        entry = schemas[identity]
    except KeyError:
        raise CorruptError(f"no schema {identity.hex()} was announced") from None
    return entry, reader_of(entry).record(value)


def line(entry: SchemaEntry, partition: int, offset: int, record: dict[str, Any]) -> dict[str, object]:
    """The JSON object of a change."""
    place = {"table": str(entry.table), "partition": partition, "offset": offset}
    return {**place, **{name: plain(value) for name, value in record.items()}}
