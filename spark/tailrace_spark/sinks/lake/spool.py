"""Record batches that wait for their commit: in memory, and from some size on in a temporary file."""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import TemporaryFile
from typing import IO, Any, Final

import pyarrow as pa

from tailrace_spark.sinks.arrow.types import conform

IN_MEMORY: Final = 64 << 20
"""Bytes, of one table."""


class Spool:
    """Batches of one table, in their order, whose columns may become more from one to the next."""

    def __init__(self, schema: Any, limit: int = IN_MEMORY) -> None:
        """`schema` is the table's, and may be changed to one that has more columns."""
        self.schema = schema
        self.rows = 0
        self._limit = limit
        self._waiting: list[Any] = []
        self._waiting_bytes = 0
        self._file: IO[bytes] | None = None
        self._at: list[int] = []

    def add(self, batch: Any) -> None:
        """Take a RecordBatch, whose columns `schema` has. Raises OSError as files do."""
        self.rows += len(batch)
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes > self._limit:
            self._spill()

    def reader(self) -> Any:
        """All of them as one RecordBatchReader, of `schema`; to be read once."""
        return pa.RecordBatchReader.from_batches(self.schema, self._all())

    def close(self) -> None:
        """Let go of memory and file; more than once is fine."""
        self._waiting = []
        if self._file is not None:
            self._file.close()

    def _spill(self) -> None:
        if self._file is None:
            self._file = TemporaryFile(prefix="tailrace-delta-")  # noqa: SIM115 - closed by `close`
        for batch in self._waiting:
            self._at.append(self._file.tell())
            options = pa.ipc.IpcWriteOptions(compression="zstd")
            with pa.ipc.new_stream(pa.PythonFile(self._file, mode="w"), batch.schema, options=options) as writer:
                writer.write_batch(batch)
        self._waiting, self._waiting_bytes = [], 0

    def _all(self) -> Iterator[Any]:
        for start in self._at:
            if self._file is not None:
                self._file.seek(start)
                yield from (conform(batch, self.schema) for batch in pa.ipc.open_stream(self._file))
        yield from (conform(batch, self.schema) for batch in self._waiting)
