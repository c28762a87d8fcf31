"""What of librdkafka's log is passed on."""

from __future__ import annotations

import logging

import pytest

from tailrace_common.kafka.client import is_news

FENCED = (
    "FATAL [rdkafka#producer-1] [thrd:main]: Fatal error: Local: This instance has been fenced by a newer instance: x"
)
OLD = "FATAL [rdkafka#producer-1] [thrd:main]: Fatal error: Broker: Producer attempted to operate with an old epoch: x"
IN_TRANSACTION = (
    "TXNERR [rdkafka#producer-5] [thrd:main]: Fatal transaction error: Failed to add partitions to transaction: Local: "
    "This instance has been fenced by a newer instance (_FENCED)"
)
OTHER = "FATAL [rdkafka#producer-1] [thrd:main]: Fatal error: Broker: Out of order sequence number: x"


@pytest.mark.parametrize(
    ("line", "news"),
    [(FENCED, False), (OLD, False), (IN_TRANSACTION, False), (OTHER, True), ("agent fenced", True)],
)
def test_a_fence_is_no_news(line: str, news: bool) -> None:
    """The error that follows says it, with what to do."""
    assert is_news(logging.LogRecord("x", logging.CRITICAL, "x", 1, "%s", (line,), None)) == news
