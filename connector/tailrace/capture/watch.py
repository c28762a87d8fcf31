"""What wakes the run loop: one signal for many causes, and file notification of cdc_raw as a hint."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

from tailrace_common.closing import Closing

_LOG: Final = logging.getLogger("tailrace.capture")
_KINDS: Final = frozenset({"created", "modified", "moved", "closed", "deleted"})


class Signal:
    """Set from any thread, or from a signal handler; one waiter.

    The condition's lock is reentrant, because a handler runs in the waiter's own thread, perhaps while that holds it.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition(threading.RLock())
        self._set = False

    def set(self) -> None:
        """Something happened: the wait that runs, or the next one, returns at once."""
        with self._condition:
            self._set = True
            self._condition.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait until set, at most `seconds`; the signal is consumed. Whether it was set."""
        with self._condition:
            self._condition.wait_for(lambda: self._set, timeout=max(0.0, seconds))
            was, self._set = self._set, False
            return was


class _Hint(FileSystemEventHandler):
    def __init__(self, signal: Signal, appeared: Callable[[Path], None], indexed: Callable[[Path], None]) -> None:
        self._signal = signal
        self._appeared = appeared
        self._indexed = indexed

    def on_any_event(self, event: FileSystemEvent) -> None:
        # Only an index releases bytes. The logs change all the time and say nothing by it, but that they are there.
        path = str(event.src_path)
        if event.event_type == "created" and path.endswith(".log"):
            self._appeared(Path(path))
            self._signal.set()
        elif event.event_type in _KINDS and path.endswith(".idx"):
            self._indexed(Path(path))
            self._signal.set()


class Watch(Closing):
    """A running observer of one directory. Without notification (inotify's limits) the caller's poll has to do.

    `appeared` is called with each new log, `indexed` with an index at each event of it, in the observer's thread. Both
    files may be gone by then.
    """

    def __init__(
        self,
        directory: Path,
        signal: Signal,
        appeared: Callable[[Path], None] = lambda _: None,
        indexed: Callable[[Path], None] = lambda _: None,
    ) -> None:
        self._observer = Observer()
        try:
            self._observer.schedule(_Hint(signal, appeared, indexed), str(directory), recursive=False)
            self._observer.start()
        except OSError as error:
            _LOG.warning("no file notification for %s (%s): new segments are noticed by polling only", directory, error)

    def close(self) -> None:
        """End the observer's threads."""
        if self._observer.is_alive():
            self._observer.stop()
            self._observer.join()
