"""Sinks of tests that write each batch here: what one does with it is `take`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from tailrace_spark.batch.delivery import MicroBatch, Piece, Summary
from tailrace_spark.sinks.protocol import BatchWrite, Needed, here, nothing_needed


class HereSink(ABC):
    """A sink that writes its batches itself."""

    @abstractmethod
    def take(self, pieces: Iterable[Piece]) -> Summary:
        """Take a batch in."""

    def batch_write(self, batch: MicroBatch, needed: Needed = nothing_needed) -> BatchWrite:
        """As Sink says."""
        del batch, needed
        return here(self.take)

    def close(self) -> None:  # noqa: B027 - most have nothing to give back
        """There is nothing to give back."""
