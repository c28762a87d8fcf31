"""File notification of cdc_raw as a hint: it sets the signal; what happened is read from the directory itself."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

from tailrace.capture.wakeup import Signal
from tailrace_common.closing import Closing

_LOG: Final = logging.getLogger("tailrace.capture")
_KINDS: Final = frozenset({"created", "modified", "moved", "closed", "deleted"})


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
