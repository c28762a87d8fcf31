"""What a streaming query says of itself while a batch of it waits: `query.status`, where Spark's users look."""

from __future__ import annotations

from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.sql.streaming.query import StreamingQuery

PROCESSING: Final = "Processing new data"
"""Spark's own words while a batch is being processed."""


def show_status(query: StreamingQuery | None, words: str) -> None:
    """Make these the message of `query.status`, until Spark has another.

    By an inner interface of Spark 4.1, the only one there is; where it is missing nothing is shown, and the log tells.
    """
    if query is None:  # its first batch can be taken up before `start` has returned
        return
    wrapper: Any = query._jsq  # noqa: SLF001 - see above
    try:
        wrapper.streamingQuery().getLatestExecutionContext().updateStatusMessage(words)
    except (Py4JError, TypeError):
        return
