"""`python -m tailrace_spark`, and the main file of spark-submit: the commands of `tailrace` that this package has."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from pathlib import Path

# As a main file it is started by its path, and Python puts its folder first: there `merge` and `source` would be ours.
if sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
    del sys.path[0]

from tailrace_common.cli.program import (
    COMMANDS,
    FormatOption,
    LevelOption,
    LogFormat,
    LogLevel,
    VersionOption,
    begin,
    mount_entry_points,
    program,
)

app = program()
mount_entry_points(app, (point for point in entry_points(group=COMMANDS) if point.module.startswith("tailrace_spark.")))


@app.callback()
def tailrace_spark(
    log_level: LevelOption = LogLevel.INFO,
    log_format: FormatOption = LogFormat.HUMAN,
    version: VersionOption = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """The Spark half of tailrace: the stream from the topics to a sink, and what belongs to sinks.

    The same commands as `tailrace` has. Words and log go to stderr; exit codes are those of `tailrace`.

    Example: spark-submit --jars "$(python -m tailrace_spark stream --jars)" .../tailrace_spark/__main__.py stream
    """
    begin(log_level, log_format)


if __name__ == "__main__":
    app(prog_name="python -m tailrace_spark")
