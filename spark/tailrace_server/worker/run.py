"""One subscription while a worker runs it: a thread with its sink and its stream query, and what becomes of them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import SparkSession

from tailrace_common.backoff import Backoff
from tailrace_common.cli.logs import about
from tailrace_common.kafka import StartOffsets
from tailrace_common.settings import Settings
from tailrace_common.topics import SchemaReader
from tailrace_schemas.errors import TailraceError
from tailrace_server.meta.leases import Claim, Leases
from tailrace_server.model.subscription import INITIAL, ONLY, LostLeaseError, Topics
from tailrace_server.operations.checks import requirements
from tailrace_server.worker.failures import (
    Failure,
    Unfit,
    UnpublishedWatch,
    asked_of_cassandra,
    ended,
    uncopied,
    unfit_tables,
    waiting,
)
from tailrace_server.worker.keeping import Keeper, MetaNotes
from tailrace_server.worker.readings import Joined, Readings, new_checkpoint, reading_key
from tailrace_server.worker.settings import beginning, reads_cut_names, stream_settings, topics_pattern
from tailrace_spark.job.checkpoint import store_of
from tailrace_spark.job.checkpoint_files import Folder, files_in
from tailrace_spark.job.endings import reason
from tailrace_spark.job.member import Member, can_share
from tailrace_spark.job.metrics import StreamMetrics
from tailrace_spark.job.offsets import UNKNOWN_FORM, Offsets
from tailrace_spark.job.progress import Ends, Progress, SinkInfo
from tailrace_spark.job.sharing import ALONE, LONGEST_PAUSE_SECONDS, NEAR, Handover
from tailrace_spark.job.snapshot_context import read_back_of
from tailrace_spark.job.stream import Stream
from tailrace_spark.sinks.letters import LetterTopic
from tailrace_spark.sinks.protocol import Sink
from tailrace_spark.sinks.registry import SINKS, sink_of
from tailrace_spark.snapshot.read_back import ReadBack

log = logging.getLogger("tailrace_server")

# A query without records is taken to work after so long: what is wrong with it shows in its first moments.
_PROVEN_SECONDS: Final = 10.0


class Running(Protocol):
    """What a worker knows of a subscription that it runs."""

    @property
    def claim(self) -> Claim:
        """Its claim."""

    @property
    def ended(self) -> bool:
        """Whether it writes nothing any more."""

    @property
    def failure(self) -> Failure | None:
        """Why it ended, where nobody told it to, or what its batch waits for."""

    @property
    def note(self) -> Failure | None:
        """What is missing although nothing fails, and what to do: tables that are not published, or not copied."""

    @property
    def finished(self) -> str | None:
        """Where it has ended since there is nothing more to do: what could not be read, empty without any."""

    @property
    def works(self) -> bool:
        """Whether it reads and writes, as far as it can tell by now."""

    def stop(self) -> None:
        """Finish the batch, keep how far it is, and end."""

    def wait(self, seconds: float) -> None:
        """Until it has ended, but no longer."""

    def refresh(self) -> None:
        """Keep where its topics end now, for the lag that people see. Raises LostLeaseError, ServiceError."""


StartRun = Callable[[Claim], Running]


@dataclass(frozen=True, slots=True)
class Opened:
    """What a subscription runs with once its sink is open, alone or with others; `name` is the sink's."""

    settings: Settings
    sink: Sink
    spark: SparkSession
    name: str
    notes: MetaNotes

    @property
    def claim(self) -> str:
        """What names its writes in its sink's store, over all claims: only the last worker's are taken."""
        return f"{self.settings.topics.prefix}.sink.{self.name}"

    @property
    def reads_tables(self) -> bool:
        """Whether a snapshot is still to be read, which a stream of its own does."""
        value = self.notes.read()
        return value.current() is not None or (self.settings.stream.snapshot == INITIAL and not value.initial)

    def read_back(self) -> ReadBack | None:
        """What the log leaves open, of tables that were read."""
        return read_back_of(self.settings, self.sink, self.notes.last.tables_read)


class StreamRun:
    """As `Running` says, in a thread of its own. Nothing that it raises reaches another subscription."""

    def __init__(
        self,
        claim: Claim,
        base: Settings,
        leases: Leases,
        session: Callable[[], SparkSession],
        readings: Readings,
        ends: Ends,
    ) -> None:
        """`session` gives a session of the worker's Spark for this subscription alone.

        `readings` are those of the worker, `ends` says where partitions end.
        """
        self.claim = claim
        self._base = base
        self._leases = leases
        self._session = session
        self._stop = threading.Event()
        self._failure: Failure | None = None
        self.finished: str | None = None
        self._metrics = StreamMetrics()
        self._readings = readings
        self._joined: Joined | None = None
        self._pauses = Backoff(ALONE)
        self._alone_until = 0.0
        self._keeper = Keeper(claim, leases, ends, lambda: self._metrics.dead_letters)
        self._unpublished: UnpublishedWatch | None = None
        self._notes: MetaNotes | None = None
        self._beginning = Handover()
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"subscription {claim.subscription.reference}")
        self._thread.daemon = True
        self._thread.start()

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    @property
    def failure(self) -> Failure | None:
        if self._failure is not None:
            return self._failure
        joined = self._joined
        blocked = self._metrics.blocked or self._metrics.snapshot_blocked
        blocked = blocked or (None if joined is None else joined.reading.blocked)
        return waiting(self.claim.subscription, blocked, self._keeper.silence)

    @property
    def note(self) -> Failure | None:
        why = None if self._unpublished is None or self._keeper.next else self._unpublished.why
        if why is not None:
            return Failure(why.reason, why.action, idle=True)
        complaint = "" if self._notes is None else self._notes.complaint
        return uncopied(self.claim.subscription, complaint) if complaint else None

    @property
    def works(self) -> bool:
        proven = self._keeper.wrote_once or time.monotonic() - self._began >= _PROVEN_SECONDS
        ready = self._metrics.ready and self._metrics.snapshot_blocked is None
        return proven and ready and not self.ended

    def stop(self) -> None:
        self._stop.set()

    def wait(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        with about("subscription", self.claim.subscription.reference):
            try:
                self._follow()
            except LostLeaseError as error:
                log.warning("%s", error)
            except Exception as error:
                if not isinstance(error, TailraceError):
                    log.exception("subscription %s ended", self.claim.subscription.reference)
                self._failure = ended(self.claim.subscription, error)
            finally:
                self._stop.set()  # for whoever looks for its tables meanwhile

    def _follow(self) -> None:
        """Open the sink, begin where the progress is, and run the stream until it is stopped."""
        subscription = self.claim.subscription
        name, folder = subscription.sink_name, self._folder()
        settings = stream_settings(self._base, subscription, folder)
        section = settings.sink[name]
        with closing(sink_of(settings, name)) as sink:
            sink.reach()
            LetterTopic.of(settings, name).prepare()
            spark = self._session()
            settings = self._fitting(settings, sink)
            spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
            document = SINKS[section.type].document
            letters = f"tailrace subscriptions {subscription.reference} --letters"
            target = SinkInfo(name, section.type, section.location, document, store_of(section.identity), letters)
            self._metrics = StreamMetrics(target)
            self._notes = MetaNotes(self._leases, self.claim)
            opened = Opened(settings, sink, spark, name, self._notes)
            if (claimed := sink.capabilities.claimed) is not None:  # and then the lease is looked at, not before
                claimed.claim(opened.claim)
            self._begin(settings)
            checkpoints = files_in(spark, folder)
            remove_earlier(checkpoints, self.claim.token)
            self._in_turns(opened)
            if settings.stream.snapshot == ONLY and not self._stop.is_set():
                self.finished = opened.notes.complaint
            remove_earlier(checkpoints, self.claim.token + 1)

    def _folder(self) -> str:
        return f"{self._base.server.checkpoints.rstrip('/')}/{self.claim.subscription.sink_name}"

    def _in_turns(self, opened: Opened) -> None:
        """With others where there are any, else alone; until it is stopped."""
        if not (self._base.server.share_reading and can_share(opened.settings, opened.sink)):
            self._alone(opened, self._beginning, None)
            return
        key, handover = reading_key(opened.settings), self._beginning
        self._readings.enter(key)
        try:
            if not opened.reads_tables:
                self._join(key, opened)
            while not self._stop.is_set():
                if self._joined is None:
                    handover = self._alone(opened, handover, key)
                    if self._joined is None:
                        return
                else:
                    handover = self._together(opened, handover)
        finally:
            self._leave_place()
            self._readings.exit(key)

    def _join(self, key: str, opened: Opened) -> bool:
        """Take a seat where that is possible now; never while a batch is written."""
        if time.monotonic() < self._alone_until:
            return False
        near, name = self._keeper.behind <= NEAR, self.claim.subscription.reference
        self._joined = self._readings.join(key, opened.settings, name, self._keeper.next, near=near)
        if self._joined is not None:
            log.info("%s shares the reading of its topics", name)
        return self._joined is not None

    def _leave_place(self) -> None:
        if self._joined is not None:
            self._joined.seat.leave("it has ended")
            self._joined = None

    def _alone(self, opened: Opened, handover: Handover, key: str | None) -> Handover:
        """A stream of its own, until it ends or a seat is taken; what the next one has to know."""
        checkpoint = f"{self._folder()}/{new_checkpoint(str(self.claim.token))}"
        settings = opened.settings.with_stream(checkpoint=checkpoint)

        def wrote(batch: Progress) -> None:
            if batch.ends is None:
                raise ValueError(UNKNOWN_FORM)
            now = stream.handover
            self._keeper.wrote(batch.ends, Topics(ids=now.topic_ids, readings=now.readings))

        stream = Stream(
            opened.spark, settings, opened.sink, stop=self._stop, metrics=self._metrics, name=opened.name,
            start=self._keeper.next, notes=opened.notes, on_batch=wrote, earlier=handover, claim=opened.claim,
            leave=None if key is None else lambda: self._join(key, opened),
        )  # fmt: skip
        stream.run()
        return stream.handover

    def _together(self, opened: Opened, handover: Handover) -> Handover:
        """A member of a shared reading, until it is stopped or has to go on alone."""
        joined = self._joined
        if joined is None:
            return handover
        began = time.monotonic()

        def wrote(offsets: Offsets) -> None:
            self._keeper.wrote(offsets, Topics(ids=member.topic_ids, readings=handover.readings))

        member = Member(
            opened.spark, opened.settings, opened.sink, joined.seat, stop=self._stop, metrics=self._metrics,
            earlier=handover, claim=opened.claim, read_back=opened.read_back,
            topic_ids=lambda: joined.reading.topic_ids, wrote=wrote,
        )  # fmt: skip
        member.run()
        self._leave_place()
        now = time.monotonic()
        if now - began >= LONGEST_PAUSE_SECONDS:
            self._pauses.reset()
        self._alone_until = now + self._pauses.next()
        return replace(handover, topic_ids=member.topic_ids, kept=member.kept)

    def _fitting(self, settings: Settings, sink: Sink) -> Settings:
        """The settings without those tables of a pattern that filter or masks do not fit, which is kept for people.

        Their progress stays, so that they go on from there once they fit. Nor has it tables of other names.
        """
        subscription, unfit = self.claim.subscription, Unfit()
        if subscription.table.pattern or reads_cut_names(subscription.table):
            with SchemaReader(settings.kafka.reveal(), settings.topics.prefix, ordered=True) as schemas:
                schemas.refresh()
                required = [check for _, check in requirements(settings, subscription.sink_name, sink.capabilities)]
                topics = topics_pattern(subscription)
                unfit = unfit_tables(required, schemas.values(), topics, str(subscription.table))
            for words in unfit.reasons.values():
                log.warning("%s leaves out a table: %s", subscription.reference, words)
        if unfit.reasons != subscription.left_out:
            self._leases.leave_out(self.claim, unfit.reasons)
        return settings.with_stream(topics=unfit.without(settings.stream.topics or ""))

    def _begin(self, settings: Settings) -> None:
        """Take the offsets to begin at, which are kept first: `latest` must be the same at the next take-over."""
        broker = StartOffsets(settings.kafka.reveal())
        subscription, stored = self.claim.subscription, self._leases.positions(self.claim)
        pattern, stops = settings.stream.topics or "", settings.stream.fail_on_data_loss
        offsets, topics = beginning(subscription, stored, broker, pattern, stops=stops)
        self._beginning = Handover(topics.ids, readings=topics.readings)
        self._keeper.begin(offsets, topics)
        if not self._keeper.next:
            self._unpublished = UnpublishedWatch(
                lambda: bool(broker.partitions(pattern)),
                partial(asked_of_cassandra, settings, str(subscription.table)),
                self._stop,
            )

    def refresh(self) -> None:
        self._keeper.refresh()


def remove_earlier(checkpoints: Folder, token: int) -> None:
    """Remove the checkpoints of earlier claims, which no one reads any more. What cannot be removed stays."""
    try:
        for name in checkpoints.names():
            claimed = name.partition("-")[0]
            if claimed.isdigit() and int(claimed) < token:
                checkpoints.remove(name)
    except (OSError, Py4JJavaError) as error:
        log.warning(
            "could not remove the checkpoint of an earlier claim, which only takes disk space: %s", reason(error)
        )
