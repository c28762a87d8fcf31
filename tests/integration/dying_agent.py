"""`tailrace agent`, killed by itself with -9 when it is at a named step for the nth time.

Run with the name of the step and the number, then the program's own arguments. What was produced up to there is in
Kafka: only so does the step show anything.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from confluent_kafka import Producer

import tailrace_common.kafka.producer
from tailrace.capture.cdcraw import CdcRaw
from tailrace.cli.main import run
from tailrace.publish.routing import Router
from tests.integration.dying import Death


class Step(StrEnum):
    """Where it dies; in the order of the loop. All but the first two, and the last four, in a transaction that has
    changes."""

    READ = "after reading mutations"
    TRANSLATED = "after translating one into records"
    CHANGE = "after a change"
    HISTORY = "after a record of the schema history"
    CHANGES = "after the last change, before the offsets"
    OFFSETS = "after the offsets, before the commit"
    COMMITTED = "after the commit, before anything is released"
    UNLINKING = "before a segment is deleted"
    UNLINKED = "after a segment is deleted, before its index"
    RELEASED = "after an index is deleted"


death = Death()


class DyingProducer(Producer):
    """Dies at the steps of a transaction. Topics of tables have the prefix, the keyspace and the table for a name."""

    def __init__(self, *config: Any, **more: Any) -> None:
        super().__init__(*config, **more)
        self._changes = 0
        self._told = False
        if "transactional.id" in config[0]:
            death.flush = lambda: self.flush(60)

    def produce(self, topic: str, *record: Any, **more: Any) -> None:
        """Add a record, and die before or after it."""
        if topic.endswith(".offsets"):
            self._at(Step.CHANGES)
        super().produce(topic, *record, **more)
        if topic.endswith(".offsets"):
            self._told = True
            self._at(Step.OFFSETS)
        elif topic.endswith(".schema-history"):
            death.at(Step.HISTORY)
        elif topic.count(".") == 2:
            self._changes += 1
            self._at(Step.CHANGE)

    def commit_transaction(self, *arguments: Any) -> None:
        """Commit, and die after it."""
        super().commit_transaction(*arguments)
        self._at(Step.COMMITTED)
        if self._told:  # else the steps of the offsets are still to come, though they should be behind
            self._changes, self._told = 0, False

    def _at(self, step: Step) -> None:
        if self._changes:
            death.at(step)


def _unlink(unlink: Callable[..., None]) -> Callable[..., None]:
    def called(path: Any, *more: Any, **named: Any) -> None:
        name = os.fspath(path)
        if name.endswith(".log"):
            death.at(Step.UNLINKING)
        unlink(path, *more, **named)
        if name.endswith(".log"):
            death.at(Step.UNLINKED)
        elif name.endswith(".idx"):
            death.at(Step.RELEASED)

    return called


if __name__ == "__main__":
    death.take(Step)
    tailrace_common.kafka.producer.Producer = DyingProducer  # type: ignore[attr-defined]  # not its own, so not exported
    CdcRaw.read = death.then(Step.READ, CdcRaw.read, bool)  # type: ignore[method-assign]  # the point of it
    Router.records = death.then(Step.TRANSLATED, Router.records, bool)  # type: ignore[method-assign]  # the same
    os.unlink = _unlink(os.unlink)
    run()
