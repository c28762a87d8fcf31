"""`tailrace sinks`: the types of sinks; `tailrace sink-letters`: what a sink set aside, another try, its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Annotated

import typer

from tailrace_common.cli.console import on_terminal, print_rows, say
from tailrace_common.cli.options import SettingsFile, settings_of
from tailrace_common.kafka import RecordFetcher
from tailrace_common.settings import Settings
from tailrace_common.topics import GenerationReader, SchemaReader
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.topics import Internal, internal_topic
from tailrace_spark.batch.delivery import RecordId
from tailrace_spark.job.replay import ReplayCounts, all_letters, remove_letters, replay_letters, replay_whole_updates
from tailrace_spark.shaping import shape_of
from tailrace_spark.sinks.letters import LetterReader, LetterTopic
from tailrace_spark.sinks.registry import SINKS, sink_of
from tailrace_spark.sinks.sink_type import SinkType
from tailrace_spark.source.decode import pieces
from tailrace_spark.streams.lookup import StreamTable

app = typer.Typer(
    no_args_is_help=True,
    help="List, replay and remove a sink's dead letters.\n\nExample: tailrace sink-letters list local",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The sink's NAME in [sink.NAME].")]


def sinks(
    always_json: Annotated[bool, typer.Option("--json", help="Print JSON lines on a terminal, too.")] = False,
) -> None:
    """List the types of sinks: the values of `type` in [sink.NAME], their guarantees and requirements.

    A table on a terminal, JSON lines when piped. It connects to nothing; `tailrace check` connects to the chosen sink.

    Example: tailrace sinks --json
    """
    row = _line if always_json or not on_terminal() else _row
    print_rows(map(row, SINKS.values()), always_json=always_json)


def _line(kind: SinkType) -> dict[str, object]:
    return {
        "type": kind.name,
        "kind": kind.kind,
        "guarantee": kind.guarantee,
        "installed": not kind.missing(),
        "install": kind.install,
        "document": kind.document,
    }


def _row(kind: SinkType) -> dict[str, object]:
    return {
        "type": kind.name,
        "kind": kind.kind,
        "guarantee": kind.guarantee,
        "installed": kind.install if kind.missing() else "yes",
    }


@app.command("list")
def list_letters(name: Name, config: SettingsFile = None) -> None:
    """List a sink's dead letters: their places in Kafka and the reasons.

    A table on a terminal, JSON lines when piped.

    Example: tailrace sink-letters list local -c tailrace.toml
    """
    print_letters(name, settings_of(config))


def print_letters(name: str, settings: Settings) -> int:
    """List the letters of a sink of these settings; how many there are."""
    count = 0

    def rows(box: LetterReader) -> Iterator[dict[str, object]]:
        nonlocal count
        for letter in all_letters(box):
            count += 1
            yield {
                "topic": letter.record_id.topic,
                "partition": letter.record_id.partition,
                "offset": letter.record_id.offset,
                "bytes": len(letter.message),
                "reason": letter.reason,
            }

    with box_of(settings, name) as box:
        print_rows(rows(box), empty=f"the sink {name} has no dead letters")
    return count


@app.command()
def replay(name: Name, config: SettingsFile = None) -> None:
    """Write dead letters again, once their cause is fixed: a right, a wider column, a published schema.

    A record that is refused again stays a dead letter. Records without stored bytes, as with masks, are read from their
    topic. The stream may run meanwhile. Exit code 1 if some remain.

    Example: tailrace sink-letters replay local -c tailrace.toml
    """
    done = replay_all(name, settings_of(config))
    if done.again or done.left:
        raise typer.Exit(1)


@app.command()
def remove(name: Name, config: SettingsFile = None) -> None:
    """Remove all dead letters of a sink: their records are written no more.

    Example: tailrace sink-letters remove local -c tailrace.toml
    """
    with box_of(settings_of(config), name) as box:
        say(f"{remove_letters(box)} removed")


def replay_all(name: str, settings: Settings) -> ReplayCounts:
    """Write the letters of a sink of these settings again, and say what becomes of them."""
    done = ReplayCounts()
    with (
        box_of(settings, name) as box,
        closing(sink_of(settings, name)) as sink,
        SchemaReader(settings.kafka.reveal(), settings.topics.prefix, ordered=True) as schemas,
        RecordFetcher(settings.kafka.reveal()) as records,
    ):
        sink.reach()
        decoded = partial(pieces, schemas=schemas, early=settings.stream.accept_early)
        shape = shape_of(settings.stream, sink)
        shaped = decoded if shape is None else lambda letters: shape.shaped(decoded(letters))

        def fetch(record_id: RecordId) -> bytes | None:
            return records.value(*record_id.key)

        parts = (
            replay_letters(box, sink, shaped, fetch)
            if (updates := sink.capabilities.whole_updates) is None
            else replay_whole_updates(box, sink, shaped, fetch, updates, _streams(settings))
        )
        for replayed_page in parts:
            done += replayed_page
            say(f"{done.taken} taken in, {done.again} set aside again{_left(done)}")
    if done == ReplayCounts():
        say("there are no dead letters")
    return done


def _streams(settings: Settings) -> StreamTable:
    """The generations up to now. Raises ServiceError where none is published."""
    topic = internal_topic(settings.topics.prefix, Internal.GENERATIONS)
    with GenerationReader.open(settings.kafka.reveal(), topic) as reader:
        published = reader.refresh()
        if not published:
            raise ServiceError("no valid generation is published yet: is an agent running?")
        return StreamTable.of_published(published, reader.known_until)


def _left(done: ReplayCounts) -> str:
    return f", {done.left} left, which their topics have no longer" if done.left else ""


def box_of(settings: Settings, name: str) -> LetterReader:
    """The dead letters of a sink. Raises SettingsError where there is none of the name."""
    if name not in settings.sink:
        raise SettingsError(f"there is no [sink.{name}]; set: {', '.join(settings.sink) or 'none'}")
    return LetterReader(LetterTopic.of(settings, name))
