"""One reading of topics for several subscriptions: a stream whose sink hands each batch to all of them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import SparkSession

from tailrace_common.settings import Settings
from tailrace_spark.batch.delivery import MicroBatch, Piece, Summary
from tailrace_spark.job.checkpoint_files import files_in
from tailrace_spark.job.endings import reason
from tailrace_spark.job.metrics import StreamMetrics
from tailrace_spark.job.offsets import UNKNOWN_FORM, Offsets, PlannedBatch
from tailrace_spark.job.progress import Trouble
from tailrace_spark.job.sharing import NEAR, Seat, Seats, SharedPart
from tailrace_spark.job.stream import Stream
from tailrace_spark.sinks.protocol import BatchWrite, Capabilities, Needed, here, nothing_needed

log = logging.getLogger("tailrace_spark")

# Subscriptions that start together are to find each other before the first batch.
_QUIET_SECONDS: Final = 1.0
_MOST_SECONDS: Final = 5.0
_EMPTY: Final = "nobody is there any more"


class SharedReading:
    """Reads topics for all that have a seat, in a thread of its own. It ends when nobody is there, or when it fails.

    Whatever fails here, it is the members that find out why: each goes on alone, from where it is. `settings` have the
    topics and a checkpoint, which is removed at the end; filters and masks are the members' own.
    """

    def __init__(
        self,
        session: Callable[[], SparkSession],
        settings: Settings,
        name: str,
    ) -> None:
        self._session = session
        limit = min(settings.stream.max_offsets_per_trigger, NEAR)
        self._settings = settings.with_stream(
            where={}, columns={}, snapshot="never", max_offsets_per_trigger=limit, execution="driver"
        )
        self._name = name
        self._stop = threading.Event()
        self._metrics = StreamMetrics()
        self._seats = Seats(time.monotonic)
        self._stream: Stream | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def join(self, name: str, offsets: Offsets) -> Seat | None:
        """A seat for who goes on to read at these offsets; None where the reading is elsewhere, or has ended."""
        seat = self._seats.join(name, offsets)
        if seat is not None and not self._thread.is_alive():
            with suppress(RuntimeError):  # another member has started it
                self._thread.start()
        return seat

    @property
    def blocked(self) -> Trouble | None:
        """What a batch waits for before members get it: Kafka or the generations."""
        return self._metrics.blocked

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """The topics that were read, by their ids: who goes on alone has to know them again."""
        return {} if self._stream is None else self._stream.handover.topic_ids

    @property
    def runs(self) -> bool:
        """Whether it uses Spark."""
        return self._thread.is_alive()

    def end_if_empty(self) -> bool:
        """End the reading where nobody is there; whether nobody can join any more."""
        ended = self._seats.close_if_empty(_EMPTY)
        if ended:
            self._stop.set()
        return ended

    def close(self) -> None:
        """End it, whoever is there."""
        self._seats.close("the worker ends")
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        why = _EMPTY
        try:
            self._read()
        except Exception as error:
            if not self._stop.is_set():  # else a query that waits for Kafka did not end in time, and nobody is there
                why = f"the shared reading ended: {reason(error)}"
                log.warning("%s: %s; its members go on alone", self._name, why)
        finally:
            self._seats.close(why)

    def _read(self) -> None:
        spark = self._session()
        checkpoint = self._settings.stream.checkpoint
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", self._name)
        start = self._seats.begin(_QUIET_SECONDS, _MOST_SECONDS, self._stop)
        log.info("%s: one reading for %s", self._name, ", ".join(self._seats.names))
        sink = HandOut(self._seats)
        try:
            self._stream = Stream(
                spark, self._settings, sink, stop=self._stop, metrics=self._metrics, name=self._name,
                start=start, on_parts=sink.begin,
            )  # fmt: skip
            self._stream.follow()
        finally:
            folder, _, name = checkpoint.rpartition("/")
            with suppress(OSError, Py4JJavaError):
                files_in(spark, folder).remove(name)


class HandOut:
    """The sink of a shared reading."""

    capabilities = Capabilities(ordered=True)

    def __init__(self, seats: Seats) -> None:
        self._seats = seats
        self._left = 0
        self._plan = PlannedBatch({}, {})
        self._members: list[Seat] = []

    def begin(self, plan: PlannedBatch | None, parts: int) -> None:
        """A batch comes, in so many parts. Raises ValueError for a checkpoint whose form is not known."""
        if plan is None:
            raise ValueError(UNKNOWN_FORM)
        self._plan, self._left = plan, parts
        self._members = self._seats.plan(plan)

    def batch_write(self, batch: MicroBatch, needed: Needed = nothing_needed) -> BatchWrite:
        """As Sink says."""
        del batch, needed
        return here(self.take)

    def take(self, pieces: Iterable[Piece]) -> Summary:
        """Decode a part for all, and hand it out."""
        decoded = tuple(pieces)
        self._left -= 1
        self._seats.hand_out(SharedPart(self._plan, decoded, last=self._left == 0), self._members)
        return Summary(sum(len(piece.changes) for piece in decoded))

    def close(self) -> None:
        """There is nothing to give back."""
