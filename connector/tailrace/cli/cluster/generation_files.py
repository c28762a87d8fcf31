"""Rings and generations as the JSON files that `tailrace generations` reads and prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tailrace_schemas.errors import CorruptError, SettingsError
from tailrace_schemas.ring import Node, Ring, RingError, ring_seed
from tailrace_schemas.streams import Entry, Generation, StreamId, build_generation
from tailrace_schemas.tokens import MAX_TOKEN, MIN_TOKEN

Token = Annotated[int, Field(ge=MIN_TOKEN, le=MAX_TOKEN)]
IgnoreMsb = Annotated[int, Field(ge=0, le=63)]


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
    timestamp: int
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

    timestamp: int
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
