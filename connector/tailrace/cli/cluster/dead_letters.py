"""`tailrace dead-letters`: what the agents told of mutations that could not be published."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from tailrace.publish.dead_letters import FORMAT
from tailrace.publish.kafka import KafkaTopics
from tailrace_common.cli.console import on_terminal, print_json, print_rows, say
from tailrace_common.cli.options import SettingsFile, settings_of
from tailrace_common.kafka import Record, TopicReader
from tailrace_schemas.formats import FIRST, require_format
from tailrace_schemas.packing import json_object
from tailrace_schemas.topics import Internal, internal_topic


def dead_letters(
    config: SettingsFile = None,
    host: Annotated[str | None, typer.Option("--host", metavar="ID", help="Only those of this host.")] = None,
) -> None:
    """List the agents' dead letters, oldest first: position, table and reason.

    They report mutations that could not be published at that time; `tailrace parked list` shows those that still wait.
    JSON lines when piped, in the form of docs/contracts.md section 2.

    Example: tailrace dead-letters -c tailrace.toml
    """
    settings = settings_of(config)
    kafka, topic = settings.kafka.reveal(), internal_topic(settings.topics.prefix, Internal.DEAD_LETTER)
    topics, _ = KafkaTopics(kafka, settings.topics, create=False).survey()
    letters: list[dict[str, Any]] = []
    if topic in topics:
        with TopicReader(kafka, topic, beginning=True) as reader:
            letters = list(letters_of((record for _, record in reader.read_to_end()), host))
    if not letters:
        say("there are no dead letters")
    elif on_terminal():
        print_rows(short(letter) for letter in letters)
    else:
        for letter in letters:
            print_json(letter)


_SHOWN: Final = frozenset({"at", "host", "lost", "mutations", "reason", "segment", "table", "table_id"})


def letters_of(records: Iterable[Record], host: str | None) -> Iterator[dict[str, Any]]:
    """The letters, by time; records that carry bytes are passed over. `host`: only of this one.

    Raises SettingsError for a record of a later version.
    """
    for record in sorted(records, key=lambda record: record.timestamp):
        record_name = f"a record of {record.timestamp} ms, offset {record.offset},"
        try:
            letter = json_object(record.value or b"{}")
            letter_format = letter.get("format", FIRST)
            if not isinstance(letter_format, int):
                raise ValueError(f"format {letter_format!r}")
        except ValueError as error:
            say(f"{record_name} is no dead letter: {error}")
            continue
        require_format(record_name, letter_format, FORMAT)
        if letter.keys() >= _SHOWN and host in (None, letter["host"]):
            yield letter


def short(letter: dict[str, Any]) -> dict[str, object]:
    """What fits a terminal."""
    return {
        "at": datetime.fromtimestamp(letter["at"] / 1000, UTC).isoformat(timespec="seconds"),
        "host": letter["host"],
        "table": letter["table"] or letter["table_id"],
        "segment": letter["segment"],
        "mutations": len(letter["mutations"]),
        "bytes": sum(size for _, size in letter["mutations"]),
        "lost": len(letter["lost"]),
        "reason": letter["reason"],
    }
