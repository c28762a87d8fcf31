"""What ends with a `with`: whatever has a `close`, and threads."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self


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
