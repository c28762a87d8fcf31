"""`tailrace generations`: the cluster's generations, live, as tables, JSON and pictures; building them, offline."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tailrace.cli.cluster.ring_picture import Circle, circles, place, ring_svg
from tailrace.cli.support.options import time_of, topic_of
from tailrace_common.cli.console import on_terminal, print_json, print_rows, say
from tailrace_common.cli.options import SettingsFile, settings_of
from tailrace_common.settings import Settings
from tailrace_common.topics import GenerationReader, SchemaReader
from tailrace_schemas.errors import CorruptError, SettingsError
from tailrace_schemas.generation_records import PublishedGeneration
from tailrace_schemas.literal_keys import serialized_key
from tailrace_schemas.ring import Node, Ring, RingError, ring_seed
from tailrace_schemas.streams import Entry, Generation, StreamId, build_generation, differences, stream_for
from tailrace_schemas.table import Table
from tailrace_schemas.tokens import MAX_TOKEN, MIN_TOKEN
from tailrace_schemas.tokens import token as token_of
from tailrace_schemas.topics import Internal, internal_topic

_TOKEN: Final = re.compile(r"-?[0-9]{1,19}")

app = typer.Typer(
    no_args_is_help=True,
    help="Show stream ids and their generations: live from Kafka, or offline.\n\nExample: tailrace generations list",
)

Timestamp = Annotated[
    int | None,
    typer.Argument(metavar="TIMESTAMP", help="The generation's timestamp in milliseconds. Default: the newest.", min=0),
]


TableName = Annotated[
    str | None,
    typer.Option("--table", metavar="KEYSPACE.TABLE", help="The table that the keys belong to.", show_default=False),
]
At = Annotated[
    str | None,
    typer.Option(
        "--at", metavar="TIME", help="A write time: ISO 8601, or microseconds. Default: now.", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on a terminal, too.")]
Token = Annotated[int, Field(ge=MIN_TOKEN, le=MAX_TOKEN)]
IgnoreMsb = Annotated[int, Field(ge=0, le=63)]
Milliseconds = Annotated[int, Field(ge=-62_135_596_800_000, le=253_402_300_799_999)]
"""Of the years 1 to 9999; microseconds of today are not among them."""


@app.command()
def build(
    ring: Annotated[Path, typer.Option("--ring", metavar="FILE", help="The ring, as JSON.", show_default=False)],
) -> None:
    """Build the generation of a ring offline, and print it as JSON.

    The file: {"nodes": [{"host": "...", "tokens": [...]}], "streams_per_entry": n, "ignore_msb": n,
    "timestamp": ms, "seed": n}. Equal files produce equal stream ids.

    Example: tailrace generations build --ring ring.json
    """
    print_json(generation_object(build_from(ring)))


@app.command()
def lookup(
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY", help="Partition keys, in CQL or as 0x and their bytes.", show_default=False),
    ] = None,
    table: TableName = None,
    moment: At = None,
    generation: Annotated[
        Path | None,
        typer.Option(
            "--generation", metavar="FILE", help="A generation as `build` or `show` prints it.", show_default=False
        ),
    ] = None,
    config: SettingsFile = None,
    json: Json = False,
) -> None:
    """Print the stream of each key and its place in the ring, or the streams of tokens offline.

    A key is 0x and its serialized bytes, or with --table CQL: 7, café, or "143, 'b'" for several columns. Put -- before
    a key that begins with a minus. The generation is the one of now, of --at, or of --generation. Without KEY,
    --generation is required: tokens come from standard input, one a line, and each stream id is printed in hexadecimal.

    Example: tailrace generations lookup --table shop.orders 7 --at 2026-11-22T12:00:00Z
    """
    if not keys:
        if generation is None:
            raise SettingsError("lookup: name a KEY, or give --generation FILE and tokens on standard input")
        _look_up_tokens(read_generation(generation))
        return
    settings = settings_of(config)
    definition = None if table is None else _definition(settings, table)
    serialized = [serialized_key(key, definition) for key in keys]
    if generation is not None:
        from_file = read_generation(generation)
        _print_found((_found(from_file, (), key, data) for key, data in zip(keys, serialized, strict=True)), json)
        return
    with _published(settings) as reader:
        published, mark = _at(reader, moment)
    proposal = published.unpack()
    around = circles(proposal.ring)
    rows = (_found(proposal.generation, around, key, data) for key, data in zip(keys, serialized, strict=True))
    _print_found(({**row, "mark": mark} for row in rows), json)


@app.command("list")
def list_(config: SettingsFile = None, json: Json = False) -> None:
    """List the valid generations of the cluster, oldest first.

    Example: tailrace generations list -c tailrace.toml
    """
    with _published(settings_of(config)) as reader:
        print_rows(
            (_row(generation) for generation in reader.published),
            always_json=json,
            empty="no generation is published yet",
        )


@app.command()
def show(timestamp: Timestamp = None, config: SettingsFile = None, json: Json = False) -> None:
    """Show a generation: nodes and their shares on a terminal, else JSON that `lookup` reads.

    Example: tailrace generations show > generation.json
    """
    with _published(settings_of(config)) as reader:
        published = _find(reader.published, timestamp)
    proposal = published.unpack()
    if json or not on_terminal():
        print_json(generation_object(proposal.generation))
        return
    say(" ".join(f"{name} {value}" for name, value in _row(published).items() if value is not None))
    print_rows(_nodes(proposal.ring))
    say("the whole of it: --json; as a picture: tailrace generations picture -o ring.svg")


@app.command()
def diff(
    old: Annotated[int, typer.Argument(metavar="OLD", help="Timestamp of the earlier generation, in milliseconds.")],
    new: Annotated[int, typer.Argument(metavar="NEW", help="Timestamp of the later generation, in milliseconds.")],
    config: SettingsFile = None,
    json: Json = False,
) -> None:
    """Print the streams that closed and opened between two generations, as a table or JSON.

    Example: tailrace generations diff 1760000000000 1760000065000
    """
    with _published(settings_of(config)) as reader:
        predecessor, successor = (_find(reader.published, timestamp).unpack().generation for timestamp in (old, new))
    difference = differences(predecessor, successor)
    closed, opened = sorted(difference.closed), sorted(difference.opened)
    if json or not on_terminal():
        streams = {
            "closed": [stream.value.hex() for stream in closed],
            "opened": [stream.value.hex() for stream in opened],
        }
        print_json({"old": old, "new": new, **streams})
        return
    for words, some in (("closed", closed), ("opened", opened)):
        print_rows({"change": words, "stream": stream.value.hex(), "token": stream.token} for stream in some)
    say(f"{len(closed)} streams closed, {len(opened)} opened, {len(successor.streams() - difference.opened)} stay")


@app.command()
def picture(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The SVG file to write.", show_default=False)
    ],
    timestamp: Timestamp = None,
    keys: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="KEY", help="A key to mark; repeatable.", show_default=False),
    ] = None,
    table: TableName = None,
    ring: Annotated[
        Path | None,
        typer.Option("--ring", metavar="FILE", help="A ring as `build` reads it, drawn offline.", show_default=False),
    ] = None,
    config: SettingsFile = None,
) -> None:
    """Draw a generation's ring as SVG: token ranges, the nodes that hold them, streams, and where keys fall.

    Keys are written as for `lookup`. Large rings are simplified, so that a browser can show them.

    Example: tailrace generations picture -o ring.svg --table shop.orders --key 7
    """
    settings = settings_of(config)
    definition = None if table is None else _definition(settings, table)
    placed = [(_label(table, key), token_of(serialized_key(key, definition))) for key in keys or ()]
    if ring is not None:
        nodes, generation = read_ring(ring), build_from(ring)
    else:
        with _published(settings) as reader:
            proposal = _find(reader.published, timestamp).unpack()
        nodes, generation = proposal.ring, proposal.generation
    try:
        output.write_text(ring_svg(nodes, generation, placed), encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{output}: {error.strerror}") from None
    say(f"{output}: the ring of generation {generation.timestamp}")


def _look_up_tokens(generation: Generation) -> None:
    for line_number, line in enumerate(sys.stdin, 1):
        text = line.strip()
        token = int(text) if _TOKEN.fullmatch(text) else None
        if token is None or not MIN_TOKEN <= token <= MAX_TOKEN:
            raise SettingsError(f"standard input, line {line_number}: {text!r} is no token: a signed 64-bit decimal is")
        print(stream_for(generation, token).value.hex(), flush=sys.stdin.isatty())


def _print_found(rows: Iterator[dict[str, object]], json: bool) -> None:
    """JSON lines, or a table for each key: a row would be wider than a terminal."""
    for row in rows:
        if json or not on_terminal():
            print_json(row)
            continue
        hosts = row.pop("hosts", {})
        facts = {**row, **({f"host in {dc}": host for dc, host in hosts.items()} if isinstance(hosts, dict) else {})}
        print_rows({"fact": name, "value": value} for name, value in facts.items() if value is not None)


def _found(generation: Generation, around: Sequence[Circle], key: str, serialized: bytes) -> dict[str, object]:
    """What `lookup` says of a key; `hosts` are the first replica in each datacenter, where the ring is known."""
    location = place(generation, around, key, token_of(serialized))
    row: dict[str, object] = {
        "key": key,
        "token": location.token,
        "stream": location.stream.value.hex(),
        "generation": generation.timestamp,
        "after": location.start,
        "up_to": location.end,
    }
    return {**row, "hosts": {datacenter: node.host for datacenter, node in location.owners}} if around else row


def _nodes(ring: Ring) -> Iterator[dict[str, object]]:
    for circle in circles(ring):
        for share in circle.shares:
            yield {
                "datacenter": circle.datacenter,
                "host": share.node.host,
                "tokens": len(share.node.tokens),
                "share": f"{100 * share.part:.2f} %",
            }


def _label(table: str | None, key: str) -> str:
    return key if table is None else f"{table} {key}"


def _definition(settings: Settings, name: str) -> Table:
    """The newest definition of a table that agents publish. Raises SettingsError where there is none."""
    with SchemaReader(settings.kafka.reveal(), settings.topics.prefix, ordered=True) as schemas:
        schemas.refresh()
        entries = list(schemas.values())
        topic_of(entries, name, settings.topics.prefix)
        return max((entry for entry in entries if str(entry.table) == name), key=lambda entry: entry.announced).table


def _at(reader: GenerationReader, moment: str | None) -> tuple[PublishedGeneration, str | None]:
    """The generation that operates at a time, and a mark, if any. Raises SettingsError where there is none yet."""
    _find(reader.published, None)
    written = time_of("--at", moment)
    operating, mark = reader.operating(time.time_ns() // 1000 if written is None else written)
    return operating, None if mark is None else mark.value


@contextmanager
def _published(settings: Settings) -> Iterator[GenerationReader]:
    topic = internal_topic(settings.topics.prefix, Internal.GENERATIONS)
    with GenerationReader.open(settings.kafka.reveal(), topic) as reader:
        reader.refresh()
        yield reader


def _find(published: tuple[PublishedGeneration, ...], timestamp: int | None) -> PublishedGeneration:
    for generation in reversed(published):
        if timestamp in (None, generation.timestamp):
            return generation
    if not published:
        raise SettingsError("there is no generation yet: the first agent to start makes it")
    newest = ", ".join(str(generation.timestamp) for generation in published[-3:])
    raise SettingsError(f"no generation has timestamp {timestamp}; the last are {newest} (`tailrace generations list`)")


def _row(generation: PublishedGeneration) -> dict[str, object]:
    proposal = generation.unpack()
    entries = proposal.generation.entries
    return {
        "timestamp": generation.timestamp,
        "from": datetime.fromtimestamp(generation.timestamp / 1000, UTC).isoformat(timespec="milliseconds"),
        "nodes": len(proposal.ring.nodes),
        "entries": len(entries),
        "streams": entries.stream_count,
        "predecessor": generation.predecessor,
        "uuid": generation.uuid,
    }


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class NodeOfFile(_Part):
    """A node and its tokens, in any order."""

    host: str
    datacenter: str = ""
    tokens: list[Token]


class RingFile(_Part):
    """What a generation is built from; without a seed, the one that a cluster's first generation has."""

    nodes: list[NodeOfFile]
    timestamp: Milliseconds
    streams_per_entry: Annotated[int, Field(ge=1, le=4096)] = 1
    ignore_msb: IgnoreMsb = 0
    seed: int | None = None


class EntryOfFile(_Part):
    """An entry; its stream ids as 32 hexadecimal digits, in shard order."""

    range_end: Token
    ignore_msb: IgnoreMsb = 0
    streams: list[str]


class GenerationFile(_Part):
    """A generation; its entries ascend by the end of their range."""

    timestamp: Milliseconds
    entries: list[EntryOfFile]


File = TypeVar("File", bound=_Part)


def build_from(path: Path) -> Generation:
    """The generation of a RingFile. Raises SettingsError with the file, the place in it, and what is wrong there."""
    file = _read(path, RingFile)
    ring = _ring_of(path, file)
    return build_generation(
        ring,
        file.streams_per_entry,
        file.ignore_msb,
        timestamp=file.timestamp,
        seed=ring_seed(ring, None) if file.seed is None else file.seed,
    )


def read_ring(path: Path) -> Ring:
    """The ring of a RingFile. Raises SettingsError likewise."""
    return _ring_of(path, _read(path, RingFile))


def read_generation(path: Path) -> Generation:
    """The generation of a GenerationFile. Raises SettingsError likewise."""
    file = _read(path, GenerationFile)
    try:
        entries = tuple(
            Entry(entry.range_end, tuple(map(StreamId.parse, entry.streams)), entry.ignore_msb)
            for entry in file.entries
        )
        return Generation(file.timestamp, entries)
    except CorruptError as error:
        raise SettingsError(f"{path}: {error}") from error


def generation_object(generation: Generation) -> dict[str, object]:
    """{"timestamp": ms, "entries": [{"range_end", "ignore_msb", "streams": ["32 hex digits", ...]}, ...]}."""
    return {
        "timestamp": generation.timestamp,
        "entries": [
            {
                "range_end": entry.token_range_end,
                "ignore_msb": entry.sharding_ignore_msb,
                "streams": [stream.value.hex() for stream in entry.streams],
            }
            for entry in generation.entries
        ],
    }


def _ring_of(path: Path, file: RingFile) -> Ring:
    try:
        return Ring(tuple(Node(node.host, node.datacenter, tuple(node.tokens)) for node in file.nodes))
    except RingError as error:
        raise SettingsError(f"{path}: {error}") from error


def _read(path: Path, kind: type[File]) -> File:
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        location = ".".join(map(str, first["loc"]))
        raise SettingsError(": ".join(clause for clause in (str(path), location, first["msg"]) if clause)) from error
