"""A worker as a process runs it: with Spark, a clock and the meta database."""

from __future__ import annotations

import logging
import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final
from uuid import uuid4

from tailrace_common.closing import beside
from tailrace_common.kafka import PartitionEnds
from tailrace_common.properties.passthrough import Scalar
from tailrace_common.settings import Settings
from tailrace_schemas.errors import ServiceError
from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.leases import Claim, Leases
from tailrace_server.worker.keeping import SharedEnds
from tailrace_server.worker.readings import Readings
from tailrace_server.worker.run import Running, StreamRun
from tailrace_server.worker.worker import Worker
from tailrace_spark.job.endings import java_end
from tailrace_spark.job.session import SparkOnce, quiet_pools

log = logging.getLogger("tailrace_server")

_BEAT_SECONDS: Final = 1.0
_FAIR: Final = "spark.scheduler.mode"


def spark_settings(settings: Settings) -> dict[str, Scalar]:
    """[stream.spark], where the jobs of all subscriptions have their turns unless somebody has set it otherwise."""
    return {_FAIR: "FAIR", **settings.stream.spark.reveal()}


@contextmanager
def working(settings: Settings, database: MetaDatabase, spark: SparkOnce) -> Iterator[Worker]:
    """A worker of this process, which leaves in order."""
    server = settings.server
    owner = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
    leases = Leases(database, settings.topics.prefix, owner, server.lease_seconds)
    session = spark()
    quiet_pools(session)

    readings = Readings(session.newSession, server.checkpoints)
    readings.remove_leftovers()
    ends = SharedEnds(PartitionEnds(settings.kafka.reveal()).of, time.monotonic)

    def start(claim: Claim) -> Running:
        return StreamRun(claim, settings, leases, session.newSession, readings, ends.of)

    chance = random.SystemRandom()
    worker = Worker(
        leases,
        start,
        server,
        clock=time.monotonic,
        random=chance.random,
        shuffle=lambda ids: chance.sample(ids, len(ids)),
    )
    log.info("worker %s: subscriptions of %s in %s", owner, settings.topics.prefix, database.location)
    try:
        yield worker
    finally:
        worker.close()
        readings.close()
        log.info("worker %s has left", owner)


def work(worker: Worker, stop: threading.Event, spark: SparkOnce, lease_seconds: float) -> None:
    """Until it is stopped. Raises ServiceError where Spark's Java has ended: a new process has to be started."""
    with watched(worker):
        while not stop.wait(min(_BEAT_SECONDS, lease_seconds / 6)):
            if spark.ended:
                raise ServiceError(java_end() or "Spark's Java has ended")
            worker.beat()


def watched(worker: Worker) -> AbstractContextManager[None]:
    """While inside, all that runs stops when the leases end, whatever a beat waits for."""

    def watch(over: threading.Event) -> None:
        lease_seconds = 0.0
        while not over.wait(lease_seconds if lease_seconds > 0 else _BEAT_SECONDS):
            lease_seconds = worker.expire()

    return beside(watch, "leases")
