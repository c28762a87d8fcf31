"""`tailrace parked` and `tailrace dead-letters`: mutations that could not be published, and what to do."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final
from uuid import UUID

import typer

from tailrace.agent.parking import publish_parked
from tailrace.agent.tables import KEPT
from tailrace.assembly.replay_targets import origins_of, with_announced
from tailrace.assembly.schema_file import definitions_of
from tailrace.assembly.services import open_router, pace_of, topics_of
from tailrace.capture.cdcraw import CdcRaw
from tailrace.changes.transcode import Message, Transcoder
from tailrace.cli.support.options import existing_directory, existing_file
from tailrace.cli.support.records import (
    Fence,
    Host,
    change_record,
    chosen_host,
    known_hosts,
    known_topics,
    publisher_of,
    require_stopped,
    require_unchanged,
)
from tailrace.commitlog.frames import Entry
from tailrace.history.decode import messages_at, source_at
from tailrace.history.schema import SchemaHistory
from tailrace.publish.hosts import HostRecord
from tailrace.publish.reports import LETTER_FORMAT
from tailrace.retention.spool import Spool
from tailrace.segments.keys import keys_of_settings
from tailrace.state import Parked
from tailrace_common.cli.console import on_terminal, print_json, print_rows, say
from tailrace_common.cli.options import SettingsFile, Yes, confirm, settings_of
from tailrace_common.durations import duration_words
from tailrace_common.kafka import SUPPOSED, Record, TopicReader
from tailrace_common.selection import coverage
from tailrace_common.settings import Settings
from tailrace_common.topics import SchemaReader
from tailrace_schemas.change import Origin, Source
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.formats import json_object, require_format
from tailrace_schemas.position import NO_POSITION
from tailrace_schemas.table import Table
from tailrace_schemas.topics import Internal, internal_topic

_OF_A_LOT: Final = ("segment", "table_id", "table", "mutations", "since")

app = typer.Typer(
    no_args_is_help=True,
    help="List, retry and drop parked mutations: those without a definition, or refused by Kafka.\n\n"
    "Example: tailrace parked list",
)

Segments = Annotated[
    list[int] | None, typer.Option("--segment", metavar="ID", help="Only those of this segment; repeatable.")
]
TableIds = Annotated[
    list[UUID] | None, typer.Option("--table-id", metavar="UUID", help="Only those of this table id; repeatable.")
]


@app.command("list")
def list_(config: SettingsFile = None) -> None:
    """List parked mutations: their number and reason, by host, segment and table.

    State: `waiting`; `dead`, reported by a dead letter, and still retried when the schema changes; `unknown`, of a host
    whose record cannot be read.

    Example: tailrace parked list -c tailrace.toml
    """
    settings = settings_of(config)
    hosts = known_hosts(settings)
    names = (
        _names(settings)
        if any(host_record.resume is not None and host_record.resume.parked for host_record in hosts)
        else {}
    )
    print_rows(parked_rows(hosts, names, time.time()), empty="nothing is parked")


@app.command()
def retry(
    config: SettingsFile = None,
    host: Host = None,
    schema: Annotated[
        Path | None,
        existing_file("Definitions that the cluster has no longer, as `dump --schema` reads them."),
    ] = None,
    directory: Annotated[
        Path | None,
        existing_directory("Where the host's segments are, beside its spool. Without it, agent.cdc_raw_directory."),
    ] = None,
    segment: Segments = None,
    table_id: TableIds = None,
    fence: Fence = False,
    yes: Yes = False,
) -> None:
    """Publish parked mutations by definitions from a file, or by those that were published.

    Run it on the node, and stop the host's agent first. Mutations that can be decoded are published once, with `origin
    = parked`. Exit code 3 when others stay parked.

    Example: tailrace parked retry --schema old-schema.jsonl
    """
    settings = settings_of(config)
    record, resume = chosen_host(settings, host)
    lots = chosen_lots(resume.parked, segment, table_id)
    require_stopped(settings, record, time.time(), fence=fence, directory=directory)
    say(f"host {record.host}: {_many(lots)} to be tried")
    confirm("Publish what can be decoded?", yes)
    segment_directory = directory or settings.agent.cdc_raw_directory
    with ExitStack() as stack:
        selection = settings.tables.selection
        topics = topics_of(settings)
        router = open_router(settings, topics, selection.wants, stack)
        messages = _Messages(settings, schema, record.host)
        if not settings.tables.release_unselected and not coverage(selection, messages.tables).selected:
            router.keep_unselected(KEPT)
        spool = Spool(settings.agent.spool_directory / record.host, settings.agent.spool_bytes)
        capture = stack.enter_context(
            closing(CdcRaw(segment_directory, resume, keys_of_settings(settings.agent), spool=spool))
        )
        pace = pace_of(settings, SUPPOSED)
        publisher = stack.enter_context(closing(publisher_of(settings, record, pace, topics)))
        require_unchanged(record, publisher.start())
        outcome = publish_parked(publisher, capture, router, messages.of, resume, frozenset(lots).__contains__, pace)
    say(f"{outcome.mutations} mutations published, {outcome.changes} changes")
    for reason, count in outcome.left.items():
        say(f"{count} wait on: {reason}")
    if outcome.lost:
        say(f"{outcome.lost} are not in {segment_directory}: their segment is gone, or is another one")
    if outcome.left or outcome.lost:
        raise typer.Exit(3)


@app.command()
def drop(
    config: SettingsFile = None,
    host: Host = None,
    segment: Segments = None,
    table_id: TableIds = None,
    fence: Fence = False,
    yes: Yes = False,
) -> None:
    """Drop parked mutations: they are never published, and the agent releases their segments.

    Stop the host's agent first. Without --segment and --table-id, all mutations of the host are dropped.

    Example: tailrace parked drop --table-id 5bc52802-de25-35ed-aeab-188eecebb090
    """
    settings = settings_of(config)
    record, resume = chosen_host(settings, host)
    lots = frozenset(chosen_lots(resume.parked, segment, table_id))
    remaining = replace(resume, parked=tuple(lot for lot in resume.parked if lot not in lots))
    say(f"host {record.host}: {_many(lots)} of all tables in them are never published")
    change_record(settings, record, remaining, "Give them up?", fence=fence, yes=yes)
    say("given up: the agent releases their segments when it is started")


def parked_rows(hosts: Iterable[HostRecord], names: Mapping[UUID, str], now: float) -> Iterator[dict[str, object]]:
    """A row for each lot, and for each host of which that is not known; `names` are tables that were ever published,
    `now` is wall time in seconds."""
    for host_record in hosts:
        if host_record.resume is None:
            unknown = {"state": "unknown", "reason": host_record.problem}
            yield {"host": host_record.host, **dict.fromkeys(_OF_A_LOT), **unknown}
            continue
        for lot in host_record.resume.parked:
            yield {
                "host": host_record.host,
                "segment": lot.segment,
                "table_id": lot.table,
                "table": names.get(lot.table),
                "mutations": len(lot.offsets),
                "since": duration_words(max(0.0, now - lot.since / 1000)),
                "state": "dead" if lot.dead else "waiting",
                "reason": lot.reason,
            }


def chosen_lots(lots: Iterable[Parked], segments: list[int] | None, tables: list[UUID] | None) -> tuple[Parked, ...]:
    """Those of these segments and tables; None: of all. Raises SettingsError where there are none."""
    chosen = tuple(
        lot for lot in lots if (not segments or lot.segment in segments) and (not tables or lot.table in tables)
    )
    if not chosen:
        raise SettingsError("nothing of that is parked: `tailrace parked list` shows what is")
    return chosen


class _Messages:
    """Decodes by the definitions of a file, of the cluster, and of everything that was ever published."""

    def __init__(self, settings: Settings, schema: Path | None, host: str) -> None:
        origins = origins_of(settings, None, host)
        with SchemaReader(settings.kafka.reveal(), settings.topics.prefix) as announced:
            announced.refresh()
            tables = with_announced(origins.tables, announced.values())
        from_file: tuple[Table, ...] = () if schema is None else definitions_of(schema)[0]
        self.tables = (*tables, *from_file)
        self._history = SchemaHistory().learn(self.tables)[0]
        self._transcoder = Transcoder(settings.topics.prefix, settings.avro.forms())
        self._node = Source(origins.host, origins.datacenter, NO_POSITION, 0, 0, origin=Origin.PARKED)

    def of(self, entry: Entry) -> list[Message]:
        source = source_at(self._node, entry.position, time.time_ns() // 1_000_000)
        return messages_at(self._history, self._transcoder, entry.payload, entry.version, source)


def _names(settings: Settings) -> dict[UUID, str]:
    with SchemaReader(settings.kafka.reveal(), settings.topics.prefix) as announced:
        announced.refresh()
        return {entry.table.id: str(entry.table) for entry in announced.values()}


def _many(lots: Iterable[Parked]) -> str:
    count = sum(len(lot.offsets) for lot in lots)
    return f"{count} mutation{'' if count == 1 else 's'}"


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
    topic = internal_topic(settings.topics.prefix, Internal.DEAD_LETTER)
    letters: list[dict[str, Any]] = []
    if topic in known_topics(settings):
        with TopicReader(settings.kafka.reveal(), topic, beginning=True) as reader:
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

    Raises SettingsError for a record of another version.
    """
    for record in sorted(records, key=lambda record: record.timestamp):
        record_name = f"a record of {record.timestamp} ms, offset {record.offset},"
        try:
            letter = json_object(record.value or b"{}")
            if not isinstance(letter_format := letter.get("format"), int):
                raise ValueError(f"format {letter_format!r}")
        except ValueError as error:
            say(f"{record_name} is no dead letter: {error}")
            continue
        require_format(record_name, letter_format, LETTER_FORMAT)
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
