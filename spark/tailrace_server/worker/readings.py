"""The shared readings of a worker: subscriptions of the same topics, read alike, meet here."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from typing import Final, NamedTuple
from uuid import uuid4

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import SparkSession

from tailrace_common.settings import Settings
from tailrace_spark.job.checkpoint_files import files_in
from tailrace_spark.job.offsets import Offsets
from tailrace_spark.job.shared_reading import SharedReading
from tailrace_spark.job.sharing import Seat

log = logging.getLogger("tailrace_server")

# Settings of [stream] that are a member's own, and change nothing of what is read.
_OWN: Final = ("sink", "checkpoint", "where", "columns", "hash_key", "hash_key_file", "snapshot", "execution",
               "starting_offsets", "metrics_address", "metrics_port")  # fmt: skip
_FOLDER: Final = "shared"


def reading_key(settings: Settings) -> str:
    """A digest of all that says what is read and how: subscriptions that have the same can read together."""
    stream = settings.stream
    named = stream.model_dump(mode="json", exclude={*_OWN, "kafka", "spark"})
    text = repr((sorted(named.items()), sorted(stream.kafka.reveal().items()), settings.topics.prefix))
    return blake2b(text.encode(), digest_size=8).hexdigest()


class Readings:
    """All shared readings of one worker. Any thread may call."""

    def __init__(self, session: Callable[[], SparkSession], checkpoints: str) -> None:
        """`session` gives a session of the worker's Spark, `checkpoints` is server.checkpoints."""
        self._session = session
        self._folder = f"{checkpoints.rstrip('/')}/{_FOLDER}"
        self._changed = threading.Lock()
        self._interested: Counter[str] = Counter()
        self._readings: dict[str, SharedReading] = {}
        self._ending: list[SharedReading] = []

    def enter(self, key: str) -> None:
        """A subscription that reads so is there."""
        with self._changed:
            self._interested[key] += 1

    def exit(self, key: str) -> None:
        """It is not there any more."""
        with self._changed:
            self._interested[key] -= 1
            self._forget_ended()

    def join(self, key: str, settings: Settings, name: str, offsets: Offsets, *, near: bool) -> Joined | None:
        """A seat with its reading; None where there is nobody to read with, or they are elsewhere.

        Only who is `near` the end of the topics begins a new reading.
        """
        with self._changed:
            self._forget_ended()
            reading = self._readings.get(key)
            if reading is None:
                if not near or self._interested[key] < 2:
                    return None
                reading = self._readings[key] = self._new(key, settings)
            seat = reading.join(name, offsets)
            return None if seat is None else Joined(reading, seat)

    def close(self) -> None:
        """End all readings, and wait for that: Spark must not go before them."""
        with self._changed:
            readings = [*self._readings.values(), *self._ending]
        for reading in readings:
            reading.close()

    def remove_leftovers(self) -> None:
        """Remove checkpoints of processes of this machine that were killed, which no one reads any more."""
        with suppress(OSError, Py4JJavaError):
            folder = files_in(self._session(), self._folder)
            for name in folder.names():
                host, process = name.rsplit("-", 2)[:2] if name.count("-") > 1 else ("", "")
                if host == socket.gethostname() and process.isdigit() and not _runs(int(process)):
                    folder.remove(name)

    def _forget_ended(self) -> None:
        self._ending = [reading for reading in self._ending if reading.runs]
        for key, reading in list(self._readings.items()):
            if reading.end_if_empty():
                self._ending.append(self._readings.pop(key))

    def _new(self, key: str, settings: Settings) -> SharedReading:
        name = new_checkpoint(f"{socket.gethostname()}-{os.getpid()}")
        return SharedReading(self._session, settings.with_stream(checkpoint=f"{self._folder}/{name}"), f"shared-{key}")


def new_checkpoint(owner: str) -> str:
    """The name of a checkpoint of a process or a claim, which none had before.

    In a container each process has the same id, and the tokens of claims are given again once the meta database is
    restored from a backup. A checkpoint that was found under a name would say that changes are written which are not.
    """
    return f"{owner}-{uuid4().hex}"


class Joined(NamedTuple):
    """A reading, and the seat in it."""

    reading: SharedReading
    seat: Seat


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
