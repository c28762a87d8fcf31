"""Options and arguments that several commands share, and what their texts name: times, topics, positions in a log."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from tailrace.segments.keys import KEY, KEY_PASSWORD, PASSWORD
from tailrace_schemas.avro import SchemaEntry, announced_topics
from tailrace_schemas.errors import SettingsError

# As Position's text has it, the log epoch in front; a node's files are all of one.
_POSITION: Final = re.compile(r"(?:\d{1,9}/)?(\d{1,19})(?::(\d{1,10}))?", re.ASCII)
_SEGMENT_END: Final = 1 << 31

METAVAR: Final = "SEGMENT[:OFFSET]"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Eight digits are a day of ISO 8601, not a moment of 1970.
_MICROSECONDS: Final = re.compile(r"(?!\d{8}$)-?\d{1,19}", re.ASCII)
DAMAGED: Final = 3
"""Exit code when something could not be shown."""

SegmentFiles = Annotated[
    list[Path],
    typer.Argument(
        metavar="SEGMENT...", exists=True, dir_okay=False, readable=True, help="Segment files, CommitLog-*.log."
    ),
]

Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="HEX",
        envvar=KEY,
        help="The AES key of encrypted segments, 32, 48 or 64 hexadecimal digits. A list of processes shows it: the "
        "variable does not.",
        show_default=False,
    ),
]
Keystore = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="The JCEKS or PKCS12 keystore with the keys of encrypted segments. Its password is taken from "
        f"{PASSWORD}, or from --keystore-password-file; that of its keys, where they have another one, from "
        f"{KEY_PASSWORD}.",
    ),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--keystore-password-file",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="A file whose first line is the keystore's password.",
    ),
]

Since = Annotated[
    str | None, typer.Option(metavar=METAVAR, help="Only mutations after this position, or from this segment on.")
]
Until = Annotated[
    str | None, typer.Option(metavar=METAVAR, help="Only mutations up to this position, or to this segment's end.")
]


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """Mutations behind `since` up to and including `until`: (segment id, logical position behind a mutation)."""

    since: tuple[int, int] = (-1, 0)
    until: tuple[int, int] = ((1 << 63) - 1, _SEGMENT_END)

    def touches(self, segment: int) -> bool:
        """Whether a mutation of this segment may be in it."""
        return self.since[0] <= segment <= self.until[0]


def stretch_of(since: str | None, until: str | None) -> SegmentRange:
    """The stretch between two positions; a segment alone stands for its beginning, or its end. Raises SettingsError."""
    unbounded = SegmentRange()
    stretch = SegmentRange(
        unbounded.since if since is None else _position("--since", since, 0),
        unbounded.until if until is None else _position("--until", until, _SEGMENT_END),
    )
    if stretch.since >= stretch.until:
        raise SettingsError(f"nothing can be behind --since {since} and not behind --until {until}")
    return stretch


def _position(option: str, text: str, offset: int) -> tuple[int, int]:
    match = _POSITION.fullmatch(text)
    if match is None:
        raise SettingsError(f"{option} {text}: a position is {METAVAR}, such as 1795246977430:560288")
    return int(match[1]), offset if match[2] is None else int(match[2])


def existing_file(help: str) -> Any:
    """An option that names a file which is there; typer does not make the class of options public."""
    return typer.Option(metavar="FILE", exists=True, dir_okay=False, help=help)


def existing_directory(help: str) -> Any:
    """An option that names a directory which is there."""
    return typer.Option(metavar="DIR", exists=True, file_okay=False, help=help)


def time_of(option: str, text: str | None) -> int | None:
    """A write time in microseconds, of ISO 8601 or digits. Raises SettingsError, which names the option."""
    if text is None:
        return None
    if _MICROSECONDS.fullmatch(text):
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise SettingsError(f"{option} {text}: a time is such as 2026-11-21T17:00:00Z, or microseconds") from None
    return ((when if when.tzinfo is not None else when.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)


def topic_of(entries: Iterable[SchemaEntry], table: str, prefix: str) -> str:
    """The topic of a table by the last schema announced for its name. Raises SettingsError where there is none."""
    topics = announced_topics(entries)
    if table in topics:
        return topics[table]
    nearest = difflib.get_close_matches(table, topics, n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else f"there are: {', '.join(sorted(topics)) or 'none'}"
    raise SettingsError(f"{table}: no agent publishes such a table under the prefix {prefix}; {hint}")
