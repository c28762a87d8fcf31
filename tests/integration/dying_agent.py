"""`tailrace agent`, killed by itself with -9 at one step of its first transaction that has changes.

Run with the name of the step, then the program's own arguments. What was produced up to there is in Kafka: only so
does the step show anything.
"""

from __future__ import annotations

import os
import signal
import sys
from enum import StrEnum
from typing import Any

from confluent_kafka import Producer

import tailrace.publish.kafka.producer
from tailrace.cli.main import run


class Step(StrEnum):
    """Where it dies; in the order of a transaction."""

    CHANGE = "after the first change"
    CHANGES = "after the last change, before the offsets"
    OFFSETS = "after the offsets, before the commit"


class DyingProducer(Producer):
    """Dies at `step`. Topics of tables have the prefix, the keyspace and the table for a name."""

    step = Step.CHANGE

    def __init__(self, *config: Any, **more: Any) -> None:
        super().__init__(*config, **more)
        self._changes = 0

    def produce(self, topic: str, *record: Any, **more: Any) -> None:
        """Add a record, and die before or after it."""
        if topic.endswith(".offsets"):
            self._die_at(Step.CHANGES)
        super().produce(topic, *record, **more)
        if topic.endswith(".offsets"):
            self._die_at(Step.OFFSETS)
        elif topic.count(".") == 2:
            self._changes += 1
            self._die_at(Step.CHANGE)

    def _die_at(self, step: Step) -> None:
        if step is self.step and self._changes:
            assert self.flush(30) == 0
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    DyingProducer.step = Step(sys.argv.pop(1))
    tailrace.publish.kafka.producer.Producer = DyingProducer  # type: ignore[attr-defined]  # not its own, so not exported
    run()
