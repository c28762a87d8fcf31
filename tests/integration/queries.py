"""What Spark's users see of a streaming query, and waiting for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def status_of(spark: SparkSession) -> str:
    """The message of the running query's status; nothing while there is none."""
    return "".join(str(query.status["message"]) for query in spark.streams.active)


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Look again and again, as Spark tells nobody when a status changes. Fails after so many seconds."""
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while not condition():
        assert time.monotonic() < deadline
        pause.wait(0.05)
