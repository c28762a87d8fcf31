"""A topic that was deleted under the agent, and created again, shows where operators look."""

from __future__ import annotations

import logging
from contextlib import ExitStack

import pytest

from tailrace.assembly.agent import AgentStart, Stop
from tailrace.capture.cdcraw import Signal
from tailrace.commitlog.blocks import NO_KEYS
from tailrace.ops.health import HealthBoard
from tailrace.ops.metrics import exposition
from tailrace_common.settings import Settings


@pytest.mark.promise("agent.deleted-topic")
def test_a_topic_that_was_created_again_degrades_the_agent(caplog: pytest.LogCaptureFixture) -> None:
    """In its log, in /status with what it means, and in a metric; twice is counted twice."""
    health = HealthBoard(lambda: 0.0)
    with ExitStack() as stack:
        start = AgentStart(Settings(), NO_KEYS, Signal(), Stop(Signal()), health, stack)
        for _ in range(2):
            start.topic_recreated("t.ks.a", "was deleted under this agent: its earlier records are lost")
    assert health.now.degraded == {"topic t.ks.a": "was deleted under this agent: its earlier records are lost"}
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, "topic t.ks.a was deleted under this agent: its earlier records are lost")
    ] * 2
    metrics = exposition(health.now, 0.0).decode()
    assert "tailrace_topics_recreated_total 2.0\n" in metrics
    assert 'tailrace_problems{kind="topic"} 1.0\n' in metrics
