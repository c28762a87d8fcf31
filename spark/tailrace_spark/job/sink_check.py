"""A sink that was emptied, or restored from a backup older than the stream's checkpoint: found before a batch."""

from __future__ import annotations

import logging
from types import MappingProxyType
from typing import Final
from uuid import uuid4

from tailrace_schemas.errors import DataLossError, ServiceError
from tailrace_spark.batch.delivery import NO_BATCH, SinkProgress, missing_from_sink
from tailrace_spark.job.checkpoint import encode_note, read_note
from tailrace_spark.job.checkpoint_files import Folder
from tailrace_spark.job.offsets import Offsets
from tailrace_spark.sinks.protocol import ProgressSink

log = logging.getLogger("tailrace_spark")

_NOTE: Final = "sink.json"


class SinkCheck:
    """Compares what a sink keeps of a stream with what the stream's checkpoint counts as written.

    Of a sink that keeps no progress, None, nothing is asked.
    `files` are those of `<checkpoint>/tailrace`, whose note has the stream's id; None: it has no checkpoint of its own,
    and a new id. `location` and `checkpoint` are for people; `stops` is stream.fail_on_data_loss. One thread at a time.
    """

    def __init__(
        self,
        sink: ProgressSink | None,
        files: Folder | None,
        location: str,
        checkpoint: str,
        *,
        stops: bool,
        earlier: SinkProgress | None = None,
    ) -> None:
        """`earlier` is what the sink kept last of a stream that this one goes on from: it has to be there still."""
        self._sink = sink
        self._files = files
        self._between = f"sink {location or 'of this stream'} and stream.checkpoint {checkpoint} do not fit together"
        self._stops = stops
        self._stream: str | None = None
        self.kept = earlier
        """What the sink kept last."""

    def begin(self, batch: int = NO_BATCH, end: Offsets = MappingProxyType({})) -> None:
        """Before the query starts; `batch` is the last that counts as written, and `end` where it ends.

        Raises DataLossError; a sink that does not answer is asked at the first batch.
        """
        try:
            self._require(batch, end)
        except ServiceError as error:
            log.warning("could not read this stream's progress from the sink; the first batch tries again: %s", error)

    def before(self, batch: int, start: Offsets) -> None:
        """Before a batch that begins there is written.

        Raises DataLossError, and ServiceError where the sink does not answer.
        """
        self._require(batch - 1, start)

    def behind(self, batch: int, end: Offsets) -> None:
        """Keep that a batch up to there is in the sink, before the checkpoint counts it. Raises ServiceError."""
        if self._sink is not None:
            progress = SinkProgress(self._id(self._sink, batch - 1, end), batch, end)
            self._sink.keep_progress(progress)
            self.kept = progress

    def _require(self, batch: int, end: Offsets) -> None:
        if self._sink is not None:
            self._require_kept(self._sink, SinkProgress(self._id(self._sink, batch, end), batch, end))

    def _require_kept(self, sink: ProgressSink, committed: SinkProgress) -> None:
        missing = missing_from_sink(committed, sink.progress(committed.stream))
        if missing is None:
            return
        if self._stops:
            raise DataLossError(
                f"{self._between}: {missing}. The sink was emptied or restored from an older backup. To fill it again, "
                "set another stream.checkpoint, which reads the topics from stream.starting_offsets on; or set "
                "stream.fail_on_data_loss = false once, which goes on without these changes"
            )
        log.error("%s: %s; the stream goes on without them (stream.fail_on_data_loss = false)", self._between, missing)
        sink.keep_progress(committed)

    def _id(self, sink: ProgressSink, batch: int, end: Offsets) -> str:
        """The stream's id; a new one is in the sink, with what counts as written, before it is in the note."""
        if self._stream is None:
            note = None if self._files is None else read_note(self._files, _NOTE)
            if note is not None:
                self._stream = str(note["stream"])
                return self._stream
            if self.kept is not None:
                self._require_kept(sink, self.kept)
            stream = uuid4().hex
            sink.keep_progress(SinkProgress(stream, batch, end))
            if self._files is not None:
                self._files.write(_NOTE, encode_note(stream=stream))
            self._stream = stream
        return self._stream
