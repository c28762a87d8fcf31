"""`tailrace generations`: the cluster's generations, live; building and looking up, offline."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from tailrace.cli.console import print_json, print_rows
from tailrace.cli.generation_files import build_from, generation_object, read_generation
from tailrace.cli.options import SettingsFile, settings_of
from tailrace_common.generations import GenerationReader
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.generations import PublishedGeneration
from tailrace_schemas.streams import differences, stream_for
from tailrace_schemas.tokens import MAX_TOKEN, MIN_TOKEN
from tailrace_schemas.topics import Internal, internal_topic

_TOKEN: Final = re.compile(r"-?[0-9]{1,19}")

app = typer.Typer(
    no_args_is_help=True,
    help="Stream ids and their generations: live ones from Kafka, or built and looked up offline.\n\n"
    "Example: tailrace generations list",
)

Timestamp = Annotated[
    int | None,
    typer.Argument(metavar="TIMESTAMP", help="Its timestamp in milliseconds; without it, the last.", min=0),
]


@app.command()
def build(
    ring: Annotated[Path, typer.Option("--ring", metavar="FILE", help="The ring, as JSON.", show_default=False)],
) -> None:
    """Print the generation of a ring as JSON, without any cluster.

    The file: {"nodes": [{"host": "...", "tokens": [...]}], "streams_per_entry": n, "ignore_msb": n,
    "timestamp": ms, "seed": n}. Equal files give equal stream ids.

    Example: tailrace generations build --ring ring.json
    """
    print_json(generation_object(build_from(ring)))


@app.command()
def lookup(
    generation: Annotated[
        Path, typer.Option("--generation", metavar="FILE", help="What `build` or `show` printed.", show_default=False)
    ],
) -> None:
    """Read tokens from standard input, one a line, and print the stream id of each, 32 hexadecimal digits a line.

    Example: tailrace token 313233 | tailrace generations lookup --generation generation.json
    """
    known = read_generation(generation)
    for number, line in enumerate(sys.stdin, 1):
        text = line.strip()
        token = int(text) if _TOKEN.fullmatch(text) else None
        if token is None or not MIN_TOKEN <= token <= MAX_TOKEN:
            raise SettingsError(f"standard input, line {number}: {text!r} is no token: a signed 64-bit decimal is")
        print(stream_for(known, token).value.hex(), flush=sys.stdin.isatty())


@app.command("list")
def list_(config: SettingsFile = None) -> None:
    """List the valid generations of the cluster, oldest first.

    Example: tailrace generations list -c tailrace.toml
    """
    with _published(config) as published:
        print_rows(_row(one) for one in published)


@app.command()
def show(timestamp: Timestamp = None, config: SettingsFile = None) -> None:
    """Print one generation as JSON, in the form that `lookup` reads.

    Example: tailrace generations show > generation.json
    """
    with _published(config) as published:
        print_json(generation_object(_find(published, timestamp).unpack().generation))


@app.command()
def diff(
    old: Annotated[int, typer.Argument(metavar="OLD", help="Timestamp of the one before, in milliseconds.")],
    new: Annotated[int, typer.Argument(metavar="NEW", help="Timestamp of the one after.")],
    config: SettingsFile = None,
) -> None:
    """Print the streams that the change from one generation to another closed and opened, as JSON.

    Example: tailrace generations diff 1760000000000 1760000065000
    """
    with _published(config) as published:
        before, after = (_find(published, timestamp).unpack().generation for timestamp in (old, new))
    found = differences(before, after)
    print_json(
        {
            "old": old,
            "new": new,
            "closed": [stream.value.hex() for stream in sorted(found.closed)],
            "opened": [stream.value.hex() for stream in sorted(found.opened)],
        }
    )


@contextmanager
def _published(config: Path | None) -> Iterator[tuple[PublishedGeneration, ...]]:
    settings = settings_of(config)
    topic = internal_topic(settings.topics.prefix, Internal.GENERATIONS)
    with GenerationReader.open(settings.kafka.reveal(), topic) as reader:
        yield reader.refresh()


def _find(published: tuple[PublishedGeneration, ...], timestamp: int | None) -> PublishedGeneration:
    for one in reversed(published):
        if timestamp in (None, one.timestamp):
            return one
    if not published:
        raise SettingsError("there is no generation yet: the first agent to start makes it")
    known = ", ".join(str(one.timestamp) for one in published[-3:])
    raise SettingsError(f"no generation has timestamp {timestamp}; the last are {known} (`tailrace generations list`)")


def _row(one: PublishedGeneration) -> dict[str, object]:
    proposal = one.unpack()
    entries = proposal.generation.entries
    return {
        "timestamp": one.timestamp,
        "from": datetime.fromtimestamp(one.timestamp / 1000, UTC).isoformat(timespec="milliseconds"),
        "nodes": len(proposal.ring.nodes),
        "entries": len(entries),
        "streams": entries.stream_count,
        "predecessor": one.predecessor,
        "uuid": one.uuid,
    }
