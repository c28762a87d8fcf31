"""Says of a subscription whose tables have no topic why that is, until there is one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Final

from tailrace_common.settings import Settings
from tailrace_common.topics import Unpublished, why_unpublished
from tailrace_schemas.errors import ServiceError, TailraceError
from tailrace_spark.job.snapshot_settings import read_settings
from tailrace_spark.snapshot.session import ClusterView

_AGAIN_SECONDS: Final = 30.0


class UnpublishedWatch:
    """Looks in a thread of its own, now and every 30 seconds, until it is told to stop or there are topics."""

    def __init__(self, published: Callable[[], bool], ask: Callable[[], Unpublished], stop: threading.Event) -> None:
        """`published` says whether there are topics by now; it may raise ServiceError."""
        self._published = published
        self._ask = ask
        self._stop = stop
        self.why: Unpublished | None = None
        self._thread = threading.Thread(target=self._run, name="unpublished tables", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Until it looks no more, but no longer."""
        self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            try:
                if self._published():
                    self.why = None
                    return
                self.why = self._ask()
            except ServiceError as error:
                self.why = Unpublished(f"Kafka does not answer: {error}", "start Kafka, or correct its address")
            if self._stop.wait(_AGAIN_SECONDS):
                return


def asked_of_cassandra(settings: Settings, pattern: str) -> Unpublished:
    """Why nothing of these tables is published, as Cassandra at [cluster] has them; it raises nothing."""
    try:
        with closing(ClusterView(read_settings(settings, table="system.local"))) as cluster:
            tables = {".".join(name): cdc for name, cdc in cluster.cdc_by_name().items()}
    except TailraceError as error:
        return Unpublished(
            f"nothing of {pattern} is published yet, and why cannot be asked: {error}",
            f"is there such a table, with cdc = true? If not: ALTER TABLE {pattern} WITH cdc = true",
        )
    return why_unpublished(pattern, tables)
