"""Arguments and options of the commands that read segment files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from tailrace.segments.keys import KEY, KEY_PASSWORD, PASSWORD
from tailrace.segments.ranges import METAVAR

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
