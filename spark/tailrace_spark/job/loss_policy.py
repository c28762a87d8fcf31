"""Handles records that Kafka has lost: the stream stops their table, reads on without them, or ends."""

from __future__ import annotations

import logging
from typing import Final

from tailrace_schemas.errors import DataLossError, ServiceError
from tailrace_spark.job.endings import reason
from tailrace_spark.job.losses import Loss
from tailrace_spark.job.metrics import StreamMetrics
from tailrace_spark.job.offsets import Plan, PlannedOffsets
from tailrace_spark.job.topic_watch import TopicWatch

log: Final = logging.getLogger("tailrace_spark")


class LossPolicy:
    """Looks for losses before a query starts, before each batch, and after a query has failed.

    `stops` is stream.fail_on_data_loss. `checkpoint` is for people.
    """

    def __init__(
        self, watch: TopicWatch, planned: PlannedOffsets, metrics: StreamMetrics, checkpoint: str, *, stops: bool
    ) -> None:
        self._watch = watch
        self._planned = planned
        self._metrics = metrics
        self._checkpoint = checkpoint
        self._stops = stops
        self._form_warned = False

    def plan(self, batch: int) -> Plan | None:
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
            losses = self._watch.settle()
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
            losses = self._watch.settle()
        except (ServiceError, ValueError) as trouble:
            raise ServiceError(f"the stream ended: {reason(failure)}; {trouble}") from error
        if not losses:
            raise ServiceError(f"the stream ended: {reason(failure)}") from error
        self._report(losses, ends=ends)

    def require_none_stopped(self) -> None:
        """Raise DataLossError where a table is stopped, once all others were read to their end."""
        if self._watch.stopped:
            raise DataLossError(self._watch.words("all others were read to their end"))

    def _report(self, losses: list[Loss], *, ends: bool) -> None:
        """Say once what is lost, and what follows: here, or where the stream `ends` by itself, in its last words."""
        self._metrics.lost(losses, self._watch.stopped)
        if self._watch.reads_nothing:
            raise DataLossError(self._watch.words("no other table is left to read, and the stream ends"))
        if self._watch.stopped and not ends:
            log.error("%s", self._watch.words("all others go on"))
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
