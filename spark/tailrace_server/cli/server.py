"""`tailrace server`: runs subscriptions."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tailrace_common.build import log_build
from tailrace_common.cli.options import SettingsFile, settings_of
from tailrace_server.cli.opening import opened
from tailrace_spark.job.session import SparkOnce

log = logging.getLogger("tailrace_server")


def server(config: SettingsFile = None) -> None:
    """Run subscriptions, as one of any number of servers on a meta database.

    It claims what nobody runs, and shares with the other servers of the cluster. SIGTERM or Ctrl-C finishes batches and
    lets the others have its subscriptions at once; after kill -9 they wait for the end of its leases.

    Example: tailrace server -c tailrace.toml
    """
    from tailrace_server.worker.serving import spark_settings, work, working  # Spark's packages take their time

    settings = settings_of(config)
    log_build(log)
    stop = threading.Event()
    with opened(settings) as (database, subscriptions), SparkOnce(spark_settings(settings)) as spark, _stopping(stop):
        spark()
        with _stopping(stop), working(settings, database, subscriptions, spark) as worker:  # Spark has taken SIGINT
            work(worker, stop, spark, settings.server.lease_seconds)
    log.info("the server has ended")


@contextmanager
def _stopping(stop: threading.Event) -> Iterator[None]:
    """While inside, SIGTERM and SIGINT set the event instead of ending the process."""

    def tell(number: int, _frame: FrameType | None) -> None:
        log.info("%s: finishing batches", signal.Signals(number).name)
        stop.set()

    handlers = {signal_number: signal.signal(signal_number, tell) for signal_number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for signal_number, handler in handlers.items():
            signal.signal(signal_number, handler)
