"""Reads a task's ranges page by page, gently: one request at a time, of a replica, again where that may help.

What is tried of a page that does not come is decided once, for whoever reads rows: `PageReader`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from tailrace_common.backoff import Timing, Waits
from tailrace_common.unreachable import with_next_try
from tailrace_schemas.errors import ServiceError
from tailrace_spark.snapshot.pace import Fault, PageSize, RowRate
from tailrace_spark.snapshot.page import PageColumns, read_columns, row_count
from tailrace_spark.snapshot.ranges import Split

log = logging.getLogger("tailrace_spark")

_UNREACHABLE_ATTEMPTS: Final = 3
_LONGEST_SECONDS: Final = 30.0
_TIMING: Final = Timing()
_TOMBSTONES: Final = (
    "its tombstones are more than tombstone_failure_threshold of cassandra.yaml: raise that, or compact the table once "
    "its gc_grace_seconds are over"
)
_DAMAGED: Final = "the nodes' logs have the cause: scrub or repair the table there"


class PageError(Exception):
    """A page did not come, and may come later."""

    def __init__(self, fault: Fault, reason: str) -> None:
        super().__init__(reason)
        self.fault = fault


class UnreadableError(ServiceError):
    """Cassandra does not give rows of a table, however often they are asked for; what is to be done is in the words."""


class ForbiddenError(ServiceError):
    """The role may not read a table, until somebody grants it."""


class PageStateError(Exception):
    """The node does not take the place at which a page was to begin: the range has to be read from its beginning."""


@dataclass(frozen=True, slots=True)
class Page:
    """Rows of Cassandra's bytes, their columns in the order selected, and where the next page begins; None: nowhere.

    `requested_at`: when it was asked for, microseconds since the epoch.
    """

    parsed: PageColumns
    octets: int
    next_page: bytes | None
    requested_at: int

    @property
    def columns(self) -> Sequence[Sequence[bytes | None]]:
        """The columns, taken apart. Raises TruncatedError, CorruptError where a node sent something else."""
        return read_columns(*self.parsed)

    @property
    def rows(self) -> int:
        """How many rows it has. Raises TruncatedError."""
        return row_count(self.parsed.data)


class PendingPage(Protocol):
    """A page that was asked for."""

    def get(self) -> Page:
        """Wait for it. Raises PageError where asking again may help, UnreadableError where it does not."""
        ...


Select = Callable[[str, Sequence[bytes | None], int, bytes | None, str | None], PendingPage]
"""Asks for a page of a SELECT: its values, most rows, the paging state that it begins at, the id of the node's host.

None for that is any node. Raises as `PendingPage.get`.
"""
Ask = Callable[[int, bytes | None, str | None], PendingPage]
"""Asks for a page of so many rows behind a paging state, as `Select` of a statement and its values does."""


def hosts_of(replicas: Iterable[str] = ()) -> deque[str | None]:
    """Whom to ask, the first: a replica; while it cannot be reached the next one; in the end any node, None."""
    return deque([*replicas, None])


class PageReader:
    """Gets pages: with fewer rows where that may help, of other nodes, and after pauses, which double.

    A page is not given up before it was asked for row by row, and then `attempts` times. The first pause has
    `retry_seconds`. `rate` limits the rows a second. `stays`: the first replica alone is asked, and given up soon:
    whoever plans knows better.
    """

    def __init__(
        self,
        size: PageSize,
        attempts: int,
        retry_seconds: float,
        timing: Timing = _TIMING,
        *,
        rate: float | None = None,
        stays: bool = False,
    ) -> None:
        self._size = size
        self._attempts = attempts
        self._retry_seconds = retry_seconds
        self._timing = timing
        self._rate = RowRate(rate, timing.clock())
        self._stays = stays

    def page(
        self,
        subject: str,
        ask: Ask,
        hosts: deque[str | None],
        state: bytes | None = None,
        pending: PendingPage | None = None,
    ) -> Page:
        """A page; `pending` is one that was asked for already. `subject` says what it is of, for people.

        Raises UnreadableError where replicas fail at it, a ServiceError for other faults, both after all attempts.
        """
        failures = 0
        while True:
            try:
                page = (pending or ask(self._size.rows, state, hosts[0])).get()
            except PageError as error:
                pending, smaller = None, error.fault in _FEWER_ROWS and self._size.halve()
                failures += not smaller
                seconds = self._retry_seconds if smaller else self._pause(failures, error.fault)
                if seconds is None:
                    raise _given_up(subject, failures, error) from error
                if not smaller and error.fault in _ELSEWHERE and not self._stays:
                    hosts.rotate(-1)
                level = logging.INFO if smaller else logging.WARNING
                words = f"could not read {subject}, {self._size.rows} rows a page next: {error}"
                log.log(level, "%s", with_next_try(words, seconds))
                self._timing.wait(seconds)
            else:
                self._size.took(page.rows, page.octets)
                return page

    def pages(self, subject: str, ask: Ask, replicas: Iterable[str] = (), state: bytes | None = None) -> Iterator[Page]:
        """The pages that have rows, from `next_page` of an earlier page on, or all. Raises as `page`.

        PageStateError is raised where no node takes that page's place any more.
        """
        hosts = hosts_of(replicas)
        pending: PendingPage | None = None
        while True:
            page = self.page(subject, ask, hosts, state, pending)
            pending, state = None, page.next_page
            seconds = self._rate.wait(page.rows, self._timing.clock())
            if state is not None and not seconds:
                # The node reads the next page while this one is made into Arrow: still one request at a time.
                with suppress(PageError):  # asked again where it is needed, which then waits and reports
                    pending = ask(self._size.rows, state, hosts[0])
            if page.rows:
                yield page
            if seconds:
                self._timing.wait(seconds)
            if state is None:
                return

    def _pause(self, failures: int, fault: Fault) -> float | None:
        """Seconds until the next attempt after so many failures in a row; None: there is none.

        An overloaded node is left alone for four times as long.
        """
        soon = self._stays and fault is Fault.UNREACHABLE
        if failures >= (min(self._attempts, _UNREACHABLE_ATTEMPTS) if soon else self._attempts):
            return None
        first = self._retry_seconds * (4 if fault is Fault.OVERLOADED else 1)
        return Waits(first, _LONGEST_SECONDS).after(failures)


_FEWER_ROWS: Final = (Fault.TIMEOUT, Fault.FAILED)
"""What fewer rows may mend."""
_ELSEWHERE: Final = (Fault.UNREACHABLE, Fault.FAILED)
"""What another node may do better."""


def _given_up(subject: str, failures: int, error: PageError) -> ServiceError:
    if error.fault is not Fault.FAILED:
        return ServiceError(f"{subject} cannot be read after {failures} attempts: {error}")
    advice = _TOMBSTONES if "tombstone" in str(error).lower() else _DAMAGED
    return UnreadableError(f"{subject} cannot be read, not even a row at a time: {error}; {advice}")


@dataclass(frozen=True, slots=True)
class RangeReader:
    """Reads ranges of a table, "keyspace.name", one after the other; of one task."""

    select: Select
    table: str
    statement: str
    reader: PageReader

    def pages(self, splits: Iterable[Split]) -> Iterator[Page]:
        """The pages of the splits that have rows. Raises ServiceError where one does not come after all attempts."""
        for split in splits:
            yield from self.pages_of(split)

    def pages_of(self, split: Split, state: bytes | None = None) -> Iterator[Page]:
        """The pages of a split, from `next_page` of an earlier page on, or all of them.

        Raises ServiceError, and PageStateError where no node takes that page's place any more.
        """
        subject = f"tokens ({split.range.start}, {split.range.end}] of {self.table}"
        ask = partial(self.select, self.statement, split.range.bounds)
        return self.reader.pages(subject, ask, split.replicas, state)
