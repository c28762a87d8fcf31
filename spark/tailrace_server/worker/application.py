"""The process of a Spark application that runs one subscription: `application_run` starts it, and tells it what to run.

The first line of its input is an Order; it answers with a line for each new Status. It finishes a batch and ends when
the input ends, by SIGTERM, and when its worker has lost the lease.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from tailrace_common.cli.options import settings_of
from tailrace_common.cli.program import LogFormat, LogLevel, begin
from tailrace_common.cli.stopping import stopping
from tailrace_common.kafka import PartitionEnds
from tailrace_common.properties.passthrough import Scalar
from tailrace_common.settings import Settings
from tailrace_schemas.errors import ServiceError, TailraceError
from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.leases import Claim, Leases
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.model.errors import LostLeaseError
from tailrace_server.operations.applications import require_allowed
from tailrace_server.sealing import Sealer
from tailrace_server.worker.ends import SharedEnds
from tailrace_server.worker.failures import Failure
from tailrace_server.worker.messages import Order, Status
from tailrace_server.worker.readings import Readings
from tailrace_server.worker.run import Running, StreamRun
from tailrace_server.worker.serving import spark_settings
from tailrace_spark.job.endings import java_end, reason
from tailrace_spark.job.session import SparkOnce
from tailrace_spark.job.spark_quiet import quiet_pools

log = logging.getLogger("tailrace_server")

Tell = Callable[[Status], None]

_BEAT_SECONDS: Final = 1.0
_REFRESH_BEATS: Final = 5
_INPUT: Final = 0
_OUTPUT: Final = 1
_ERRORS: Final = 2


def main() -> None:
    """Run what the first line of the input says, until the input ends."""
    stop, says = threading.Event(), os.dup(_OUTPUT)
    os.dup2(_ERRORS, _OUTPUT)  # what Java and libraries print is no answer

    def tell(status: Status) -> None:
        try:
            os.write(says, status.to_line())
        except OSError:
            stop.set()  # nobody reads it any more

    order = Order.from_line(_first_line())
    begin(LogLevel(order.log_level), LogFormat(order.log_format))
    threading.Thread(target=_await_end, args=(stop,), name="input", daemon=True).start()
    with stopping(stop, log, "finishing a batch"):
        run_application(order, stop, tell)


def _first_line() -> bytes:
    """Without a buffer: a thread that waits for the end of one may not hold it when Python ends."""
    line = b""
    while not line.endswith(b"\n") and (letter := os.read(_INPUT, 1)):
        line += letter
    return line


def _await_end(stop: threading.Event) -> None:
    while os.read(_INPUT, 4096):
        pass
    stop.set()


def run_application(order: Order, stop: threading.Event, tell: Tell) -> None:
    """Run the claim of an order. What fails is reported, and not raised."""
    try:
        settings = settings_of(None if order.config is None else Path(order.config))
        with _opened(order, settings) as (claim, subscriptions, leases):
            _run(claim, settings, subscriptions, leases, stop, tell)
    except LostLeaseError as error:
        log.warning("%s", error)
    except Exception as error:
        if not isinstance(error, TailraceError):
            log.exception("the Spark application of subscription %d ended", order.subscription)
        action = "`tailrace alter --spark NAME=VALUE`, or what the reason says. `tailrace resume` tries again at once."
        tell(Status(failure=Failure(reason(error), action)))


@contextmanager
def _opened(order: Order, settings: Settings) -> Iterator[tuple[Claim, Subscriptions, Leases]]:
    server = settings.server
    with MetaDatabase(server.url.get_secret_value()) as database:
        subscriptions = Subscriptions(database, Sealer(server.key_file))
        leases = Leases(database, settings.topics.prefix, order.owner, server.lease_seconds)
        yield Claim(subscriptions.get(order.subscription), order.token), subscriptions, leases


def _run(
    claim: Claim, settings: Settings, subscriptions: Subscriptions, leases: Leases, stop: threading.Event, tell: Tell
) -> None:
    subscription = claim.subscription
    # Who asked may have had other settings; what counts is what this machine allows.
    require_allowed(subscription.name, subscription.shape.spark, settings.server.spark_allowed)
    named = {"spark.app.name": f"tailrace {subscription.reference}", **spark_settings(settings)}
    server = settings.server.model_copy(update={"share_reading": False})
    alone = settings.model_copy(update={"server": server})
    ends = SharedEnds(PartitionEnds(settings.kafka.reveal()).of, time.monotonic)
    with SparkOnce({**named, **_scalars(subscription.shape.spark)}) as spark, ExitStack() as stack:
        session = spark()
        stack.enter_context(stopping(stop, log, "finishing a batch"))  # again, for Spark has taken SIGINT
        quiet_pools(session)
        if stop.is_set():
            return
        secrets, readings = partial(subscriptions.settings, subscription.id), Readings(session.newSession, "")
        run = StreamRun(claim, alone, secrets, leases, session.newSession, readings, ends.of)
        follow(run, stop, tell, lambda: spark.ended)


def _scalars(spark: Mapping[str, object]) -> dict[str, Scalar]:
    return {name: value for name, value in spark.items() if isinstance(value, bool | int | float | str)}


def follow(run: Running, stop: threading.Event, tell: Tell, java_has_ended: Callable[[], bool]) -> None:
    """Tell what becomes of a run until it has ended. Raises ServiceError where Spark's Java has ended before."""
    last, beats = Status(), 0
    while not run.ended:
        if stop.is_set():
            run.stop()
            run.wait(_BEAT_SECONDS)
        else:
            stop.wait(_BEAT_SECONDS)
        if java_has_ended():
            raise ServiceError(java_end() or "Spark's Java has ended")
        if (status := _status(run)) != last:
            tell(last := status)
        beats += 1
        if beats % _REFRESH_BEATS == 0:
            _refresh(run)
    tell(_status(run))


def _status(run: Running) -> Status:
    return Status(works=run.works, failure=run.failure, note=run.note, finished=run.finished)


def _refresh(run: Running) -> None:
    try:
        run.refresh()
    except LostLeaseError as error:
        log.warning("%s", error)
        run.stop()
    except ServiceError as error:
        log.warning("%s; what runs goes on while its worker has the lease", error)


if __name__ == "__main__":
    main()
