"""Reads a task's ranges page by page, gently: one request at a time, of a replica, again where that may help."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tailrace_common.unreachable import with_next_try
from tailrace_schemas.errors import ServiceError
from tailrace_spark.snapshot.pace import Fault, Patience, RowRate
from tailrace_spark.snapshot.page import PageColumns
from tailrace_spark.snapshot.page_size import PageSize
from tailrace_spark.snapshot.ranges import Piece, TokenRange

log = logging.getLogger("tailrace_spark")

_UNREACHABLE_ATTEMPTS: Final = 3


class PageError(Exception):
    """A page did not come, and may come later."""

    def __init__(self, fault: Fault, reason: str) -> None:
        super().__init__(reason)
        self.fault = fault


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
        return self.parsed.all()

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return self.parsed.rows


class PendingPage(Protocol):
    """A page that was asked for."""

    def get(self) -> Page:
        """Wait for it. Raises PageError where asking again may help."""
        ...


class PageSource(Protocol):
    """What pages are asked of."""

    def request(
        self, statement: str, token_range: TokenRange, rows: int, paging_state: bytes | None, host: str | None
    ) -> PendingPage:
        """Ask for a page of a range; `host` is a node's id, None for any node. Raises as `PendingPage.get`."""
        ...


@dataclass(frozen=True, slots=True)
class Clock:
    """The time in seconds, and how to wait."""

    now: Callable[[], float]
    wait: Callable[[float], None]


class RangeReader:
    """Reads ranges one after the other; of one task."""

    def __init__(
        self,
        source: PageSource,
        statement: str,
        size: PageSize,
        rate: RowRate,
        patience: Patience,
        clock: Clock,
        *,
        stays: bool = False,
    ) -> None:
        """`stays`: of a range the first replica alone is asked, and given up soon: whoever plans knows better."""
        self._source = source
        self._statement = statement
        self._size = size
        self._rate = rate
        self._patience = patience
        self._clock = clock
        self._stays = stays

    def pages(self, pieces: Iterable[Piece]) -> Iterator[Page]:
        """The pages of the pieces that have rows. Raises ServiceError where one does not come after all attempts."""
        for piece in pieces:
            yield from self.pages_of(piece)

    def pages_of(self, piece: Piece, state: bytes | None = None) -> Iterator[Page]:
        """The pages of a piece, from `next_page` of an earlier page on, or all of them.

        Raises ServiceError, and PageStateError where no node takes that page's place any more.
        """
        hosts = _Hosts(piece.replicas)
        pending: PendingPage | None = None
        while True:
            page = self._page(piece.range, state, hosts, pending)
            pending, state = None, page.next_page
            self._size.took(page.rows, page.octets)
            seconds = self._rate.wait(page.rows, self._clock.now())
            if state is not None and not seconds:
                # The node reads the next page while this one is made into Arrow: still one request at a time.
                pending = self._ahead(piece.range, state, hosts)
            if page.rows:
                yield page
            if seconds:
                self._clock.wait(seconds)
            if state is None:
                return

    def _ahead(self, token_range: TokenRange, state: bytes, hosts: _Hosts) -> PendingPage | None:
        try:
            return self._source.request(self._statement, token_range, self._size.rows, state, hosts.current)
        except PageError:
            return None  # asked again where it is needed, which then waits and reports

    def _page(self, token_range: TokenRange, state: bytes | None, hosts: _Hosts, pending: PendingPage | None) -> Page:
        failures = 0
        while True:
            try:
                if pending is None:
                    size = self._size.rows
                    pending = self._source.request(self._statement, token_range, size, state, hosts.current)
                return pending.get()
            except PageError as error:
                pending, failures = None, failures + 1
                if error.fault is Fault.TIMEOUT:
                    self._size.timed_out()
                seconds = self._patience.wait(failures, error.fault)
                if error.fault is Fault.UNREACHABLE:
                    if self._stays and failures >= _UNREACHABLE_ATTEMPTS:
                        seconds = None
                    elif not self._stays:
                        hosts.next()
                if seconds is None:
                    raise ServiceError(
                        f"tokens ({token_range.start}, {token_range.end}] cannot be read after {failures} attempts: "
                        f"{error}; the task fails, and Spark may run it again"
                    ) from error
                words = f"could not read tokens ({token_range.start}, {token_range.end}], {self._size.rows} rows a page"
                log.warning("%s", with_next_try(f"{words}: {error}", seconds))
                self._clock.wait(seconds)


class _Hosts:
    """Whom to ask for a range: a replica; while it cannot be reached the next one; in the end any node."""

    def __init__(self, replicas: tuple[str, ...]) -> None:
        self._choices: tuple[str | None, ...] = (*replicas, None)
        self._index = 0

    @property
    def current(self) -> str | None:
        return self._choices[self._index]

    def next(self) -> None:
        self._index = (self._index + 1) % len(self._choices)
