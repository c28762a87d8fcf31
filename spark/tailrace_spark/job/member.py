"""One subscription as a member of a shared reading: it writes what it is given, by its own shape, into its own sink."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Final

from pyspark.sql import SparkSession

from tailrace_common.settings import Settings
from tailrace_common.topics import SchemaReader
from tailrace_schemas.errors import TailraceError
from tailrace_spark.batch.delivery import SinkProgress, Summary
from tailrace_spark.job.batch_records import shaped
from tailrace_spark.job.endings import reason
from tailrace_spark.job.metrics import StreamMetrics
from tailrace_spark.job.offsets import Offsets
from tailrace_spark.job.progress import MANY_RECORDS, Progress
from tailrace_spark.job.runner import Runner
from tailrace_spark.job.sharing import Handover, Seat, SharedPart, advanced, without_read
from tailrace_spark.job.sink_check import SinkCheck
from tailrace_spark.job.upkeep import Sweeper
from tailrace_spark.shaping import newest, shape_of
from tailrace_spark.sinks.protocol import Sink
from tailrace_spark.snapshot.read_back import ReadBack
from tailrace_spark.source.kafka import reads_table, reads_topic
from tailrace_spark.source.readings import of_readings

log = logging.getLogger("tailrace_spark")

_LOOK_SECONDS: Final = 0.2
_LARGE: Final = "a large batch comes, which tasks write quicker"


def can_share(settings: Settings, sink: Sink) -> bool:
    """Whether a stream may read together with others.

    Not so one that reads a snapshot alone, nor log tables, which want updates whole, nor streams that leave copies out,
    since Spark keeps their state.
    Spans are sent for batches of a stream of its own.
    """
    stream, capabilities = settings.stream, sink.capabilities
    alone = capabilities.whole_updates is not None or capabilities.watermarks is not None
    alone = alone or settings.traces.endpoint is not None
    alone = alone or stream.snapshot == "only"
    return not alone and stream.one_copy_seconds is None and stream.execution != "executors"


class LeftError(Exception):
    """A member goes on alone, and the words say why."""


class Member:
    """Writes what its seat is given, by one thread, until it is stopped or the seat is closed.

    It retries nothing: what fails makes it leave, and a stream of its own tries again, and says what is wrong.
    `claim` is as Stream's. `topic_ids` gives the ids of the topics that the reading has read. `wrote` is called once
    the sink has a batch, with the offsets at which the next one begins.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        sink: Sink,
        seat: Seat,
        *,
        stop: threading.Event,
        metrics: StreamMetrics,
        earlier: Handover,
        claim: str,
        read_back: Callable[[], ReadBack | None],
        topic_ids: Callable[[], Mapping[str, str]],
        wrote: Callable[[Offsets], None],
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._sink = of_readings(sink, earlier.readings)
        self._seat = seat
        self._stop = stop
        self._metrics = metrics
        self._claim = claim
        self._read_back = read_back
        self._earlier_ids = earlier.topic_ids
        self._reading_ids = topic_ids
        self._wrote = wrote
        self._offsets = seat.offsets
        self._batch = 0
        self._records = 0
        self._begun = False
        self._taken = 0.0
        self._summary = Summary()
        self._shape = shape_of(settings.stream, sink)
        self._runner = Runner(self._sink, lambda: claim)
        self._check = SinkCheck(
            sink.capabilities.progress, None, metrics.sink_info.location, "of a shared reading",
            stops=settings.stream.fail_on_data_loss, earlier=earlier.kept,
        )  # fmt: skip
        self._sweeper = Sweeper(sink, threading.Lock(), metrics, follows=reads_table(spark, settings))

    @property
    def kept(self) -> SinkProgress | None:
        """What its sink kept last, for the stream that goes on alone."""
        return self._check.kept

    @property
    def topic_ids(self) -> dict[str, str]:
        """The topics that it has read, now and earlier, by their ids: a reading ends where one is made again."""
        return {**self._reading_ids(), **self._earlier_ids}

    def run(self) -> None:
        """Until it is stopped, or has to go on alone. What `wrote` raises is raised."""
        try:
            while self._stays():
                pass
        finally:
            self._seat.leave("it has left")

    def _stays(self) -> bool:
        """Take and write one part, if there is one; whether it stays."""
        if self._stop.is_set():
            return False
        try:
            if not self._begun:
                self._begin()
            delivery = self._seat.take(_LOOK_SECONDS)
            self._metrics.alive()
            if delivery is not None:
                self._taken = time.monotonic()
                self._write(delivery)
            elif self._seat.closed is not None:
                raise LeftError(self._seat.closed)
            else:
                self._sweeper.run()
        except Exception as error:
            if not isinstance(error, (TailraceError, LeftError)):
                log.exception("%s could not write its part of a shared reading", self._seat.name)
            log.info("%s goes on alone: %s", self._seat.name, error if isinstance(error, LeftError) else reason(error))
            return False
        if delivery is not None and delivery.last:
            self._report()
        return True

    def _begin(self) -> None:
        if self._shape is not None:
            kafka, prefix = self._settings.kafka.reveal(), self._settings.topics.prefix
            reads = reads_topic(self._spark, self._settings)
            with closing(SchemaReader(kafka, prefix, ordered=True)) as schemas:
                schemas.refresh()
                self._shape.begin(newest(entry for entry in schemas.values() if reads(entry.topic)))
        if (claimed := self._sink.capabilities.claimed) is not None:
            claimed.claim(self._claim)
        self._check.begin()
        self._begun = True

    def _write(self, part: SharedPart) -> None:
        """Write a part; the last one of a batch makes all of it written."""
        now = self._reading_ids()
        again = sorted(topic for topic, name in self._earlier_ids.items() if now.get(topic, name) != name)
        if again:  # its offsets are those of another topic
            raise LeftError(f"made again since it read them: {', '.join(again)}")
        offsets = advanced(self._offsets, part.plan)
        executors = self._sink.capabilities.executors and self._settings.stream.execution == "auto"
        if executors and part.plan.size >= MANY_RECORDS:
            raise LeftError(_LARGE)
        unread = without_read(part.pieces, self._offsets, part.plan)
        self._check.before(self._batch, self._offsets)
        self._summary += self._runner.here(self._batch, shaped(unread, self._read_back(), self._shape))
        self._records += sum(len(piece.changes) + len(piece.dead_letters) for piece in unread)
        if part.last:
            self._check.behind(self._batch, offsets)
            self._offsets = offsets
        self._seat.wrote(self._offsets)

    def _report(self) -> None:
        left_out = {} if self._shape is None else dict(self._shape.left_out)
        seconds = time.monotonic() - self._taken
        progress = Progress(
            batch=self._batch, records=self._records, summary=self._summary, left_out=left_out, seconds=seconds
        )
        self._batch, self._records, self._summary = self._batch + 1, 0, Summary()
        self._metrics.wrote(progress)
        self._wrote(self._offsets)
