"""Options of commands that read tables of Cassandra by token ranges: which part, and how gently."""

from __future__ import annotations

from typing import Annotated

import typer
from pydantic import ValidationError

from tailrace_common.settings import Settings
from tailrace_schemas.errors import SettingsError
from tailrace_spark.snapshot.settings import SnapshotSettings, explained

TableName = Annotated[str, typer.Argument(metavar="KEYSPACE.TABLE", help="The table, as Cassandra stores the names.")]
TokenRange = Annotated[
    str | None,
    typer.Option("--range", metavar="START,END", help="Only these tokens: after START, up to END; it may wrap."),
]
RowsPerSecond = Annotated[
    float | None,
    typer.Option(metavar="N", min=0.001, help="Most rows a second, of all tasks together. Without it: no limit."),
]
ConcurrentRanges = Annotated[int, typer.Option(metavar="N", min=1, help="Most ranges that are read at once.")]
RequestsPerNode = Annotated[
    int, typer.Option(metavar="N", min=1, help="Most requests that are under way at a node at once.")
]
Consistency = Annotated[str, typer.Option(metavar="LEVEL", help="Consistency level of the reads.")]
Datacenter = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Datacenter to read in. Without it, that of the first contact point."),
]


def read_settings(settings: Settings, **options: object) -> SnapshotSettings:
    """How [cluster] and a command's options read a table, masks as [snapshot] says. Raises SettingsError."""
    # Files of secrets are read already.
    cluster = {
        name: value
        for name in type(settings.cluster).model_fields
        if name not in ("name", "password_file", "tls_key_password_file")
        and (value := getattr(settings.cluster, name)) is not None
    }
    try:
        masks = {"allow_masked_values": settings.snapshot.allow_masked_values}
        return SnapshotSettings.model_validate({**cluster, **masks, **options})
    except ValidationError as error:
        lines = [explained(fault) for fault in error.errors(include_input=False, include_url=False)]
        raise SettingsError("\n".join(dict.fromkeys(lines))) from None
