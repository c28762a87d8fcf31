"""A broker that takes requests and answers nothing: whoever asks for offsets gets an error, and none."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import IsolationLevel

from tailrace.local import KafkaSettings, LocalKafka
from tailrace.publish.kafka.spans import Spans
from tailrace_common.kafka import PartitionReader, StartOffsets, TopicReader
from tailrace_common.kafka.topics import PartitionEnds, TopicMaker, TopicStates
from tailrace_schemas.errors import ServiceError
from tests.support.waiting import until

pytestmark = pytest.mark.long

PLACE = ("t.orders", 0)
SECONDS = 3.0


def test_a_broker_that_hangs_gives_no_offsets(tmp_path: Path) -> None:
    """Each has connected before, so that the request for offsets is what nobody answers."""
    with LocalKafka(tmp_path / "kafka", KafkaSettings(heap_mib=256)) as kafka:
        config = {"bootstrap.servers": kafka.bootstrap}
        TopicMaker(config).ensure(PLACE[0], 1, {})
        topic = TopicReader(config, PLACE[0], beginning=True, timeout=SECONDS)
        with topic, closing(Spans(config, "t", time.monotonic)) as spans:
            ends, starts = PartitionEnds(config, timeout=SECONDS), StartOffsets(config, timeout=SECONDS)
            states, partition = TopicStates(config, timeout=SECONDS), PartitionReader(config, *PLACE, timeout=SECONDS)
            asked: dict[str, Callable[[], object]] = {
                "ends": lambda: ends.of([PLACE]),
                "earliest": lambda: starts.earliest([PLACE]),
                "latest": lambda: starts.latest([PLACE]),
                "of a time": lambda: starts.at([PLACE], 1),
                "states": lambda: states.of([PLACE[0]]),
                "partition": lambda: list(partition.read_to_end()),
                "topic": lambda: list(topic.read_to_end()),
                "spans": lambda: spans._offsets(IsolationLevel.READ_COMMITTED, [PLACE]),
            }

            def refused() -> dict[str, str]:
                return {name: words for name, ask in asked.items() if (words := refusal(ask)) is not None}

            until(lambda: not refused(), "an answer to each", state=refused)
            os.kill(kafka.pid, signal.SIGSTOP)
            try:
                unanswered = refused()
            finally:
                os.kill(kafka.pid, signal.SIGCONT)
            assert list(unanswered) == list(asked)
            assert all("timed out" in words.lower() for words in unanswered.values()), unanswered
            until(lambda: not refused(), "an answer to each again", state=refused)


def refusal(ask: Callable[[], object]) -> str | None:
    """What is said where there is no answer."""
    try:
        ask()
    except ServiceError as error:
        return str(error)
    return None
