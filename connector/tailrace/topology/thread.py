"""The keeper of generations in a thread of its own, beside the run loop, which it never holds up."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from tailrace.ops.health import HealthBoard
from tailrace.topology.keeper import RingKeeper
from tailrace.topology.publication import RecordLog, run_appending
from tailrace_common.backoff import Backoff, Waits
from tailrace_common.closing import Closing
from tailrace_common.topics.generations import GenerationReader
from tailrace_schemas.errors import TailraceError

_LOG: Final = logging.getLogger("tailrace.topology")
_WAITS: Final = Waits(1.0, 10.0)
_END_SECONDS: Final = 5.0


class KeeperThread(Closing):
    """Steps of a keeper until `close`. A failure is reported in health and tried again, ever less often.

    After a failure the topic is read again from its start: whatever the last reader had taken, nothing is skipped.
    """

    def __init__(
        self, keeper: RingKeeper, open_reader: Callable[[], GenerationReader], log: RecordLog, health: HealthBoard
    ) -> None:
        self._keeper = keeper
        self._open = open_reader
        self._log = log
        self._health = health
        self._woken = threading.Event()
        self._stirred = self._ending = False
        self._backoff = Backoff(_WAITS)
        self._thread = threading.Thread(target=self._run, name="generations", daemon=True)
        self._thread.start()

    def stir(self, changed: bool = True) -> None:
        """An event: the ring changed, or (False) may look different. From any thread; never waits."""
        if changed:
            self._stirred = True
        self._woken.set()

    def close(self, seconds: float = _END_SECONDS) -> None:
        """End after the present step; one that waits for Kafka for longer is left behind."""
        self._ending = True
        self._woken.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        reader: GenerationReader | None = None
        while not self._ending:
            self._woken.clear()
            if self._stirred:
                self._stirred = False
                self._keeper.stir()
            try:
                reader = reader or self._open()
                seconds = run_appending(self._keeper.step(reader), self._log)
            except Exception as error:  # whatever it is, changes go on
                seconds = self._failed(error)
                _close(reader)
                reader = None
            else:
                self._backoff.reset()
                self._health.recover("generations")
            self._woken.wait(seconds)
        _close(reader)

    def _failed(self, error: Exception) -> float:
        if self._ending:
            return 0.0
        self._health.count(generation_failures=1)
        is_ours = isinstance(error, TailraceError)
        words = f"{error if is_ours else repr(error)}; no new generation meanwhile, changes go on"
        if self._health.degrade("generations", words):
            _LOG.error("generations: %s", words, exc_info=None if is_ours else error)
        return self._backoff.next()


def _close(reader: GenerationReader | None) -> None:
    """The reader is closed, however badly it fares."""
    if reader is not None:
        try:
            reader.close()
        except Exception:
            _LOG.debug("generations: closing the reader", exc_info=True)
