"""The generations of each micro-batch, noted beside Spark's checkpoint: a redelivered batch is assigned equally."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from tailrace_common.closing import Closing
from tailrace_common.topics import GenerationReader
from tailrace_schemas.generation_records import PublishedGeneration
from tailrace_spark.job.checkpoint import decode_note, encode_note
from tailrace_spark.job.checkpoint_files import Folder
from tailrace_spark.streams.lookup import StreamTable, UnpackedGenerations

log = logging.getLogger("tailrace_spark")

KEPT_BATCHES: Final = 100
"""As many as Spark keeps of its own records by default (spark.sql.streaming.minBatchesToRetain)."""


class BatchLog:
    """One small JSON file per batch, in `<checkpoint>/tailrace`."""

    def __init__(self, files: Folder) -> None:
        self._files = files

    def used(
        self, batch: int, published: Sequence[PublishedGeneration], known_until: int | None
    ) -> tuple[list[PublishedGeneration], int | None]:
        """(the generations, known until) for a batch: those noted when it was first taken up, else these, noted now.

        Of those noted, the ones that are still there; only when all are gone these.
        """
        noted = self._read(batch)
        if noted is not None:
            uuids = set(noted["generations"])
            remaining = [generation for generation in published if str(generation.uuid) in uuids]
            if len(remaining) < len(uuids):
                log.warning(
                    "batch %d is a retry: %d of the generations it used were removed; assigning by the others",
                    batch,
                    len(uuids) - len(remaining),
                )
            if remaining:  # what is newer stays out: it was not known then
                return remaining, noted["known_until"]
        self._write(batch, [str(generation.uuid) for generation in published], known_until)
        return list(published), known_until

    def _read(self, batch: int) -> Any:
        text = self._files.read(_name(batch))
        try:
            return None if text is None else decode_note(text, _name(batch))
        except ValueError:
            return None  # cut off while it was written: nothing was done with it yet

    def _write(self, batch: int, uuids: list[str], known_until: int | None) -> None:
        self._files.write(_name(batch), encode_note(generations=uuids, known_until=known_until))
        if batch >= KEPT_BATCHES:
            self._files.delete(_name(batch - KEPT_BATCHES))


class BatchGenerations(Closing):
    """The generations that each batch is assigned by, unpacked. Owns its reader; one thread at a time."""

    def __init__(self, reader: GenerationReader, batches: BatchLog) -> None:
        self._reader = reader
        self._batches = batches
        self._unpacked = UnpackedGenerations()

    def table(self, batch: int) -> StreamTable:
        """The generations up to now (docs/contracts.md 5): read to the end before each micro-batch, and noted.

        Raises ServiceError where Kafka does not answer, or no generation is valid yet.
        """
        published = self._reader.refresh_some()
        return self._unpacked.table(*self._batches.used(batch, published, self._reader.known_until))

    def close(self) -> None:
        """Leave Kafka."""
        self._reader.close()


def _name(batch: int) -> str:
    return f"{batch}.json"
