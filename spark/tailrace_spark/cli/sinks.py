"""`tailrace sinks`: the types of sinks. Spark's and the stores' libraries stay unread: the command is there at once."""

from __future__ import annotations

from typing import Annotated

import typer

from tailrace_common.cli.console import on_terminal, print_rows
from tailrace_spark.sinks.registry import SINKS
from tailrace_spark.sinks.sink_type import SinkType


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
