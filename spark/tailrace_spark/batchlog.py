"""Which generations each micro-batch used, beside Spark's checkpoint: a batch that comes again is assigned equally."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import SparkSession

from tailrace_schemas.generations import PublishedGeneration

log = logging.getLogger("tailrace_spark")

KEPT_BATCHES: Final = 100
"""As many as Spark keeps of its own records by default (spark.sql.streaming.minBatchesToRetain)."""


class BatchLog:
    """One small JSON file per batch below `<checkpoint>/tailrace`, on whatever file system the checkpoint is."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - the only way to Spark's own file systems
        self._path = jvm.org.apache.hadoop.fs.Path
        self._io = jvm.org.apache.commons.io.IOUtils
        self._folder = f"{checkpoint.rstrip('/')}/tailrace"
        configuration = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - likewise
        self._files = self._path(self._folder).getFileSystem(configuration)

    def used(
        self, batch: int, published: Sequence[PublishedGeneration], known_until: int | None
    ) -> tuple[list[PublishedGeneration], int | None]:
        """(the generations, known until) for a batch: those noted when it was first taken up, else these, noted now.

        Of those noted, the ones that are still there; only when all are gone these.
        """
        noted = self._read(batch)
        if noted is not None:
            uuids = set(noted["generations"])
            same = [generation for generation in published if str(generation.uuid) in uuids]
            if len(same) < len(uuids):
                log.warning("batch %d: of the generations it used, %d are gone", batch, len(uuids) - len(same))
            if same:  # what is newer stays out: it was not known then
                return same, noted["known_until"]
        self._write(batch, [str(generation.uuid) for generation in published], known_until)
        return list(published), known_until

    def _read(self, batch: int) -> Any:
        file = self._file(batch)
        if not self._files.exists(file):
            return None
        stream = self._files.open(file)
        try:
            return json.loads(self._io.toString(stream, "UTF-8"))
        except ValueError:
            return None  # cut off while it was written: nothing was done with it yet
        finally:
            stream.close()

    def _write(self, batch: int, uuids: list[str], known_until: int | None) -> None:
        stream = self._files.create(self._file(batch), True)
        try:
            stream.write(bytearray(json.dumps({"generations": uuids, "known_until": known_until}).encode()))
        finally:
            stream.close()
        if batch >= KEPT_BATCHES:
            self._files.delete(self._file(batch - KEPT_BATCHES), False)

    def _file(self, batch: int) -> Any:
        return self._path(f"{self._folder}/{batch}.json")
