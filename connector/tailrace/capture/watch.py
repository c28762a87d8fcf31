"""File notification of cdc_raw as a hint: it sets the signal; what happened is read from the directory itself."""

from __future__ import annotations

import logging
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

from tailrace.capture.wakeup import Signal

_LOG: Final = logging.getLogger("tailrace.capture")
_KINDS: Final = frozenset({"created", "modified", "moved", "closed", "deleted"})


class _Hint(FileSystemEventHandler):
    def __init__(self, signal: Signal) -> None:
        self._signal = signal

    def on_any_event(self, event: FileSystemEvent) -> None:
        # Only an index releases bytes. The logs change all the time and say nothing by it.
        if event.event_type in _KINDS and str(event.src_path).endswith(".idx"):
            self._signal.set()


class Watch:
    """A running observer of one directory. Without notification (inotify's limits) the caller's poll has to do."""

    def __init__(self, directory: Path, signal: Signal) -> None:
        self._observer = Observer()
        try:
            self._observer.schedule(_Hint(signal), str(directory), recursive=False)
            self._observer.start()
        except OSError as error:
            _LOG.warning("no file notification for %s (%s): it is polled only", directory, error)

    def close(self) -> None:
        """End the observer's threads."""
        if self._observer.is_alive():
            self._observer.stop()
            self._observer.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()
