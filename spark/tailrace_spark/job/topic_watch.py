"""Topics that are deleted, created again or trimmed under a stream: found before its batches, and worked around.

Spark itself is set to stop at every loss, and knows of none: its checkpoint's offsets are moved past it while no
query runs. Where losses stop a table, its topic is left out until the operator says to read on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Set
from typing import Any, Final

from tailrace_common.kafka import TopicState, TopicStates
from tailrace_schemas.errors import DataLossError, ServiceError
from tailrace_spark.job.checkpoint import encode_note, read_note
from tailrace_spark.job.checkpoint_files import Folder
from tailrace_spark.job.endings import reason
from tailrace_spark.job.metrics import StreamMetrics
from tailrace_spark.job.offsets import (
    RECREATED,
    SHORTER,
    TRIMMED,
    Loss,
    PlannedBatch,
    PlannedOffsets,
    find_losses,
    left_of,
    moved,
    topics_of,
    without,
)
from tailrace_spark.job.sharing import Handover
from tailrace_spark.source.readings import reading_of

_NOTE: Final = "topics.json"
# A topic that was just created is not known to all brokers at once: it is missing only where it stays so.
_LOOKS: Final = 4
_LOOK_SECONDS: Final = 0.5

log: Final = logging.getLogger("tailrace_spark")


class ChangedTopicsError(Exception):
    """A batch has offsets of topics that are no longer those it was planned for."""


class TopicWatch:
    """Knows the topics that a stream reads by their ids, and looks for losses: before a query, each batch, and after a
    query has failed.

    One thread at a time. `stops` is stream.fail_on_data_loss: whether a loss stops its table; else the stream reads on
    with what is left. `stopped` has the words of each topic that is left out.
    """

    def __init__(
        self,
        files: Folder,
        planned: PlannedOffsets,
        states: TopicStates,
        metrics: StreamMetrics,
        checkpoint: str,
        *,
        stops: bool,
        wait: Callable[[float], object],
        earlier: Handover,
    ) -> None:
        """`files` are those of `<checkpoint>/tailrace`; `checkpoint` is for people. `earlier` went before it."""
        self._files = files
        self._planned = planned
        self._states = states
        self._metrics = metrics
        self._checkpoint = checkpoint
        self._stops = stops
        self._wait = wait
        self._form_warned = False
        note: dict[str, Any] = read_note(files, _NOTE) or {}
        self._ids: dict[str, str] = {**earlier.topic_ids, **note.get("ids", {})}
        self._gone: set[str] = set(note.get("gone", ()))
        self.readings: dict[str, str] = {**earlier.readings, **note.get("readings", {})}
        self.stopped: dict[str, str] = note.get("stopped", {})
        self._offsets: dict[str, dict[str, int]] = note.get("offsets", {})

    @property
    def ids(self) -> dict[str, str]:
        """The ids of the topics that were read, those that are gone too: one of their name is another one."""
        return dict(self._ids)

    @property
    def _known(self) -> dict[str, str]:
        """The ids of the topics that are read."""
        return {topic: name for topic, name in self._ids.items() if topic not in self._gone}

    def check(self, plan: PlannedBatch) -> None:
        """Before a batch is read: are its topics those that were read before?

        Raises ChangedTopicsError where one is gone or another, and ServiceError where Kafka does not answer.
        """
        ids, earlier_ids = self._states.ids(plan.topics), self._known
        changed = {
            topic for topic in plan.topics if topic not in ids or earlier_ids.get(topic, ids[topic]) != ids[topic]
        }
        if changed:
            raise ChangedTopicsError(f"deleted, or created again: {', '.join(sorted(changed))}")
        if not ids.keys() <= earlier_ids.keys():
            self._know(ids)
            self._write()

    def plan(self, batch: int) -> PlannedBatch | None:
        """The batch as Spark has planned it; None where the checkpoint has a form that is not known."""
        try:
            return self._planned.plan(batch)
        except ValueError as error:
            self._warn_of_form(error)
            return None

    def at_start(self, *, ends: bool) -> None:
        """Find what Kafka lost while no stream ran. Where Kafka does not answer, Spark finds out.

        Raises DataLossError where nothing is left to read.
        """
        try:
            losses = self._settle()
        except ServiceError as error:
            log.warning("could not check yet whether Kafka still has all unread records; checking again: %s", error)
        except ValueError as error:
            self._warn_of_form(error)
        else:
            self._report(losses, ends=ends)

    def recover(self, failure: Exception, error: Exception, *, ends: bool) -> None:
        """Go past what Kafka has lost, where that ended the query.

        `failure` is what a batch raised, `error` what Spark made of it. Raises ServiceError where no loss ended it.
        """
        if isinstance(failure, DataLossError):
            raise failure from error
        try:
            losses = self._settle()
        except (ServiceError, ValueError) as trouble:
            raise ServiceError(f"the stream ended: {reason(failure)}; {trouble}") from error
        if not losses:
            raise ServiceError(f"the stream ended: {reason(failure)}") from error
        self._report(losses, ends=ends)

    def require_none_stopped(self) -> None:
        """Raise DataLossError where a table is stopped, once all others were read to their end."""
        if self.stopped:
            raise DataLossError(self._words("all others were read to their end"))

    def _settle(self) -> list[Loss]:
        """Move the checkpoint past losses since the last time, while no query runs; the losses.

        Raises ServiceError where Kafka does not answer, and ValueError for a checkpoint that is not understood.
        """
        pending = self._planned.pending()
        if pending is None:
            return []
        batch, plan = pending
        states = self._look(topics_of(plan) | (self.stopped.keys() if not self._stops else set()))
        # One that is gone may be in the plan still, where the stream was killed below.
        losses = find_losses(plan, {**self._ids, **dict.fromkeys(self._gone, "")}, states)
        reads_on = bool(self.stopped) and not self._stops
        changed = self._read_on(plan, states) if reads_on else plan
        for loss in losses:
            changed = self._past(changed, loss, states)
        if losses or reads_on:
            self._write()
            self._planned.replace(batch, changed)
            if reads_on:
                self.stopped, self._offsets = {}, {}
            self._know({topic: state.id for topic, state in states.items() if topic not in self.stopped})
            self._write()
        return losses

    def _words(self, other_tables: str) -> str:
        """A message: the stopped topics, what becomes of the other tables, and how to read on."""
        tables = "Its table is stopped" if len(self.stopped) == 1 else "Their tables are stopped"
        return (
            f"{'; '.join(self.stopped.values())}. {tables}, {other_tables} (stream.fail_on_data_loss = true). To read "
            "on with what is left, start once with stream.fail_on_data_loss = false"
        )

    @property
    def _reads_nothing(self) -> bool:
        """Whether no topic is left that was read before."""
        pending = self._planned.pending()
        return bool(self.stopped) and (pending is None or not pending[1].end)

    def _past(self, plan: PlannedBatch, loss: Loss, states: Mapping[str, TopicState]) -> PlannedBatch:
        starts = left_of(loss, states[loss.topic]) if loss.why == TRIMMED else {}
        if self._stops:
            self.stopped[loss.topic] = str(loss)
            start = moved(plan, starts).start
            topic_offsets = {
                str(partition): offset for (topic, partition), offset in start.items() if topic == loss.topic
            }
            self._offsets[loss.topic] = topic_offsets if starts else {}
            if loss.why in (RECREATED, SHORTER):
                self._leave(loss.topic)
            return without(plan, {loss.topic})
        if loss.why == TRIMMED:
            return moved(plan, starts)
        self._leave(loss.topic)
        return without(plan, {loss.topic})

    def _read_on(self, plan: PlannedBatch, states: Mapping[str, TopicState]) -> PlannedBatch:
        """With the topics that were stopped, as losses stop none any more."""
        for topic, words in self.stopped.items():
            log.warning("%s; the stream reads on with what is left (stream.fail_on_data_loss = false)", words)
            offsets = {(topic, int(partition)): offset for partition, offset in self._offsets.get(topic, {}).items()}
            if topic in states and states[topic].id == self._known.get(topic):
                plan = moved(plan, offsets)
            else:
                self._leave(topic)
        return plan

    def _leave(self, topic: str) -> None:
        """A topic is gone: one of its name is another one."""
        self._gone.add(topic)

    def _know(self, ids: Mapping[str, str]) -> None:
        """These are read now. One whose topic was gone has a reading of its own."""
        again = ids.keys() & self._gone
        self.readings.update({topic: reading_of(ids[topic], self._ids.get(topic)) for topic in again})
        self._gone -= ids.keys()
        self._ids.update(ids)

    def _look(self, topics: Set[str]) -> dict[str, TopicState]:
        states = self._states.of(topics)
        for _ in range(_LOOKS - 1):
            if topics <= states.keys():
                break
            self._wait(_LOOK_SECONDS)
            states = self._states.of(topics)
        return states

    def _write(self) -> None:
        stopped = {"stopped": self.stopped, "offsets": self._offsets}
        note = encode_note(ids=self._ids, gone=sorted(self._gone), readings=self.readings, **stopped)
        self._files.write(_NOTE, note)

    def _report(self, losses: list[Loss], *, ends: bool) -> None:
        """Say once what is lost, and what follows: here, or where the stream `ends` by itself, in its last words."""
        self._metrics.lost(losses, self.stopped)
        if self._reads_nothing:
            raise DataLossError(self._words("no other table is left to read, and the stream ends"))
        if self.stopped and not ends:
            log.error("%s", self._words("all others go on"))
        if not self._stops:
            for loss in losses:
                log.error("%s. The stream goes on with what is left (stream.fail_on_data_loss = false)", loss)

    def _warn_of_form(self, error: ValueError) -> None:
        if not self._form_warned:
            log.warning(
                "stream.checkpoint %s: Spark's files in it have a form that this version does not know (%s). Records "
                "are counted by Spark, and records that Kafka loses stop all tables, not their own alone",
                self._checkpoint,
                error,
            )
        self._form_warned = True
