"""What stands in cdc_raw and its spool, at instants that hide nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tailrace.retention.spool import Spool, list_both
from tailrace.segments.directory import Listing

_LOG: Final = logging.getLogger("tailrace.capture")


class Listings:
    """Listings of one directory, and of the spool with it, by one who holds the spool's lock."""

    def __init__(self, directory: Path, spool: Spool | None) -> None:
        self._directory = directory
        self._spool = spool
        self._indexed: frozenset[int] = frozenset()
        self._foreign: frozenset[str] = frozenset()

    def take(self) -> Listing:
        """The segments at an instant when no index is missing that is older than one seen. Raises OSError.

        A listing is no snapshot: one that shows a new index may miss an older one, created just before it. Files that
        are not Cassandra's are named in the log, each once.
        """
        while True:
            listing = list_both(self._directory, self._spool)
            indexed = frozenset(files.id for files in listing.segments if files.index is not None)
            stable, self._indexed = indexed <= self._indexed, indexed
            if stable:
                self._warn_foreign(listing.foreign)
                return listing

    def _warn_foreign(self, names: Iterable[str]) -> None:
        new = frozenset(names) - self._foreign
        if new:
            _LOG.warning(
                "%s: these files are not Cassandra's and are ignored: %s", self._directory, ", ".join(sorted(new))
            )
        self._foreign |= new
