"""What goes on beside a test, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self


class Background:
    """Takes a step after the other until the end of the `with`, `pause` seconds between two of them."""

    def __init__(self, step: Callable[[], object], pause: float = 0.01) -> None:
        self._step, self.pause = step, pause
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="background")

    def _run(self) -> None:
        while not self._over.wait(self.pause):
            self._step()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def end(self) -> None:
        """Take no more steps; the last one is waited for. Idempotent."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def __exit__(self, *_: object) -> None:
        self.end()
