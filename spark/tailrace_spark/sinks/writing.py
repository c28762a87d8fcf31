"""Writes a micro-batch in this process: its one share, by the sink's own plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from tailrace_spark.batch.delivery import Piece, Summary
from tailrace_spark.batch.micro_batch import WHOLE, MicroBatch
from tailrace_spark.sinks.protocol import Sink

OF_NO_STREAM: Final = MicroBatch("", -1, here=True, fences=False)
"""A batch that no stream reads: repairs, and what tests write."""
AGAIN: Final = replace(OF_NO_STREAM, again=True)
"""A batch of dead letters' changes."""


def write_here(sink: Sink, pieces: Iterable[Piece], batch: MicroBatch = OF_NO_STREAM) -> Summary:
    """Write a batch that is `here`; what became of it. Raises what the sink does."""
    plan = sink.batch_write(batch)
    return plan.commit([plan.writer.write(WHOLE, pieces)])
