"""`tailrace sink-letters`: what a sink set aside, another try, its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from tailrace_common.cli.console import print_rows, say
from tailrace_common.cli.options import SettingsFile, Yes, confirm, settings_of
from tailrace_common.settings import Settings
from tailrace_spark.job.replay import ReplayCounts, all_letters, box_of, remove_letters, replay_sink
from tailrace_spark.sinks.letters import LetterReader

app = typer.Typer(
    no_args_is_help=True,
    help="List, replay and remove a sink's dead letters.\n\nExample: tailrace sink-letters list local",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The sink's NAME in [sink.NAME].")]


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
def remove(name: Name, config: SettingsFile = None, yes: Yes = False) -> None:
    """Remove all dead letters of a sink: their records are written no more.

    Example: tailrace sink-letters remove local -c tailrace.toml
    """
    with box_of(settings_of(config), name) as box:
        confirm(f"Give up all dead letters of {name}?", yes)
        say(f"{remove_letters(box)} removed")


def replay_all(name: str, settings: Settings) -> ReplayCounts:
    """Write the letters of a sink of these settings again, and say what becomes of them."""
    done = ReplayCounts()
    for counts in replay_sink(name, settings):
        done += counts
        say(f"{done.taken} taken in, {done.again} set aside again{_left(done)}")
    if done == ReplayCounts():
        say("there are no dead letters")
    return done


def _left(done: ReplayCounts) -> str:
    return f", {done.left} left, which their topics have no longer" if done.left else ""
