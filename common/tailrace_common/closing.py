"""What ends with a `with`: whatever has a `close`, and threads."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class Closing(ABC):
    """Whatever has a `close`."""

    @abstractmethod
    def close(self) -> None:
        """End it; it can be used no more."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Turns(Closing, Generic[T]):
    """Turns in a thread of its own, one after the other, until it is closed; whatever goes wrong, they go on.

    Each turn has what `opened` gives, which is closed after a failure, and opened anew. Whoever extends it calls
    `begin` once all is there that a turn needs.
    """

    patience: float | None = 5.0
    """How many seconds `close` waits for a turn; one that takes longer is left behind."""

    def __init__(self, name: str, opened: Callable[[], AbstractContextManager[T]]) -> None:
        self.ended = threading.Event()
        self._opened = opened
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def _turn(self, opened: T) -> float:
        """Take a turn; the seconds until the next."""

    @abstractmethod
    def _failed(self, error: Exception) -> float:
        """Tell of what a turn, or the opening, raised; the seconds until the next."""

    def begin(self) -> None:
        """Take the first turn."""
        self._thread.start()

    def wake(self) -> None:
        """Take the next turn at once. From any thread; never waits."""
        self._woken.set()

    def close(self) -> None:
        """End after the present turn."""
        self.ended.set()
        self._woken.set()
        self._thread.join(self.patience)

    def _run(self) -> None:
        while not self._is_over():
            try:
                with self._opened() as opened:
                    while not self._is_over():
                        self._woken.wait(self._turn(opened))
            except Exception as error:
                if not self.ended.is_set():
                    self._woken.wait(self._failed(error))

    def _is_over(self) -> bool:
        self._woken.clear()  # before the look: `close` wakes behind the end
        return self.ended.is_set()


@contextmanager
def beside(run: Callable[[threading.Event], None], name: str) -> Iterator[None]:
    """While inside, `run` goes on in a thread of this name. It ends once its event is set, and is waited for."""
    over = threading.Event()
    thread = threading.Thread(target=run, args=(over,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
