"""The reason for which a stream ends, in one line, whether Spark, its Java or our code was the cause."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tailrace_common.secrets import redact
from tailrace_schemas.errors import ServiceError, TailraceError
from tailrace_spark.jvm import jvm_of, process

JAVA_GONE: Final = (Py4JError, ConnectionError)
"""Errors that PySpark raises from every call once its Java has ended."""

_LONGEST: Final = 500
_STOP_MILLISECONDS: Final = 120_000
# What Spark (StreamExecution.isInterruptionException) takes for its own stop in a message from Python. Its pattern
# overflows the stack on a long one, such as Py4JJavaError itself has.
_INTERRUPTED: Final = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling sleep: java.lang.InterruptedException"
)
_WAIT_SECONDS: Final = 10.0
_QUERY: Final = re.compile(r"^.*terminated with exception: ", re.DOTALL)
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+\s*$")
log: Final = logging.getLogger("tailrace_spark")

_PAUSE_SECONDS: Final = 2.0
# Settings of Java's client; the second must not be less than the first.
_ANSWER_TIMES: Final = ("request.timeout.ms", "default.api.timeout.ms")
_LEAST_ANSWER_MS: Final = 5_000


class StoppedError(Exception):
    """The stream was stopped while a batch waited: the batch is delivered again at the next start."""


def reason(error: BaseException) -> str:
    """The cause in one line, without a traceback or secrets."""
    if isinstance(error, TailraceError):
        return str(error)
    if isinstance(error, Py4JJavaError):
        return _short(_deepest(str(error).splitlines()))
    if isinstance(error, StreamingQueryException):
        text = _QUERY.sub("", str(error).partition("=== Streaming Query ===")[0])
        return _short(_STATE.sub("", _deepest(text.splitlines())))
    return _short(f"{type(error).__name__}: {error}")


def java_end() -> str | None:
    """The end of Spark's Java in words, with what to look at; None while it runs."""
    java = process()
    if java is None:
        return None
    try:
        code = java.wait(_WAIT_SECONDS)
    except Exception:
        return None
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return (
        f"Spark's Java {how}: the machine's memory, or that of the driver (spark.driver.memory in [stream.spark]), may "
        "be too small; the last batch is delivered again at the next start"
    )


def await_interrupt(spark: SparkSession) -> None:
    """Wait in a batch until its query is stopped, and end as Spark wants it: other errors would be its failure."""
    try:
        # Spark interrupts the JVM's side of this thread, which py4j keeps.
        jvm_of(spark).java.lang.Thread.sleep(_STOP_MILLISECONDS)
    except Py4JJavaError:
        raise StoppedError(_INTERRUPTED) from None
    raise StoppedError("the query was not stopped")


def _deepest(lines: list[str]) -> str:
    """The last cause that a Java trace names, else its first line that says something."""
    stripped = [line.strip() for line in lines if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in stripped if line.startswith("Caused by: ")]
    telling = [line.removeprefix(": ") for line in stripped if not line.startswith(("at ", "An error occurred"))]
    return (causes[-1:] or telling or ["no reason given"])[0]


def _short(text: str) -> str:
    return redact(" ".join(text.split()))[:_LONGEST]


def answer_times(patience: float | None, options: Mapping[str, object]) -> dict[str, str]:
    """Shorter timeouts of Kafka for a stream that ends after `patience` seconds, since Spark asks three times more.

    None for a stream that waits on, or where the operator's `options` have timeouts.
    """
    if patience is None or not options.keys().isdisjoint(_ANSWER_TIMES):
        return {}
    timeout = str(max(_LEAST_ANSWER_MS, int(patience * 250)))
    return {f"kafka.{name}": timeout for name in _ANSWER_TIMES}


def await_kafka(
    ask: Callable[[], object],
    seconds: float,
    *,
    wait: Callable[[float], bool],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Return once `ask` raises no ServiceError, or `wait`, which passes seconds, says to stop.

    Raises ServiceError after so many seconds.
    """
    end = clock() + seconds
    while True:
        try:
            ask()
        except ServiceError as error:
            remaining = end - clock()
            if remaining <= 0:
                raise ServiceError(
                    f"Kafka has not answered for {seconds:g} s (stream.once_wait_seconds), and `stream --once` ends "
                    f"without reading anything: {error}"
                ) from error
            log.warning("Kafka does not answer; `stream --once` tries again for %.0f s: %s", remaining, error)
        else:
            return
        if wait(min(_PAUSE_SECONDS, max(0.0, remaining))):
            return
