"""A run of a subscription as a worker sees it; the test says what becomes of it."""

from __future__ import annotations

from typing import Final

from tailrace_server.meta.leases import Claim
from tailrace_server.worker.failures import Failure

DOWN: Final = Failure("the sink is down", "start it")


class Run:
    """What the worker sees of a run; the test says what becomes of it."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.ended = False
        self.failure: Failure | None = None
        self.note: Failure | None = None
        self.finished: str | None = None
        self.works = True
        self.stopped = False
        self.quick = True

    def stop(self) -> None:
        """It ends at once, unless its batch takes longer."""
        self.stopped, self.ended = True, self.ended or self.quick

    def wait(self, seconds: float) -> None:
        """Until it has ended."""
        assert seconds > 0

    def refresh(self) -> None:
        """There is nothing to keep."""

    def fail(self) -> None:
        """It ends by itself."""
        self.failure, self.ended = DOWN, True
