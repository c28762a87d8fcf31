"""Time that passes only by waiting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class ManualClock:
    """Time that passes only by waiting; `on_wait` runs in each wait, as the world outside would."""

    now: float = 0.0
    on_wait: Callable[[], None] = lambda: None
    waits: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        """Seconds."""
        return self.now

    def wait(self, seconds: float) -> None:
        """Let so much time pass at once."""
        self.now += seconds
        self.waits.append(seconds)
        self.on_wait()
