"""Reads a task's ranges page by page, gently: one request at a time, of a replica, again where that may help.

What is tried of a page that does not come is decided once, for whoever reads rows: `PageReader`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tailrace_common.backoff import Waits
from tailrace_common.unreachable import with_next_try
from tailrace_schemas.errors import ServiceError
from tailrace_spark.snapshot.pace import Fault, PageSize, RowRate
from tailrace_spark.snapshot.page import PageColumns
from tailrace_spark.snapshot.ranges import Split, TokenRange

log = logging.getLogger("tailrace_spark")

_UNREACHABLE_ATTEMPTS: Final = 3
_TOMBSTONES: Final = (
    "its tombstones are more than tombstone_failure_threshold of cassandra.yaml: raise that, or compact the table once "
    "its gc_grace_seconds are over"
)
_DAMAGED: Final = "the nodes' logs have the cause: scrub or repair the table there"


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a page is asked for in vain, and the seconds between: doubled each time, up to the longest."""

    attempts: int = 8
    first_seconds: float = 0.25
    longest_seconds: float = 30.0

    def wait(self, failures: int, fault: Fault) -> float | None:
        """Seconds until the next attempt after so many failures in a row; None: there is none.

        An overloaded node is left alone for four times as long.
        """
        if failures >= self.attempts:
            return None
        first = self.first_seconds * (4 if fault is Fault.OVERLOADED else 1)
        return Waits(first, self.longest_seconds).after(failures)


class PageError(Exception):
    """A page did not come, and may come later."""

    def __init__(self, fault: Fault, reason: str) -> None:
        super().__init__(reason)
        self.fault = fault


class UnreadableError(ServiceError):
    """Cassandra does not give rows of a table, however often they are asked for; what is to be done is in the words."""


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
        """Wait for it. Raises PageError where asking again may help, UnreadableError where it does not."""
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


class Hosts:
    """Whom to ask: a replica; while it cannot be reached the next one; in the end any node."""

    def __init__(self, replicas: tuple[str, ...] = ()) -> None:
        self._choices: tuple[str | None, ...] = (*replicas, None)
        self._index = 0

    @property
    def current(self) -> str | None:
        """The id of the node's host; None: of any."""
        return self._choices[self._index]

    def next(self) -> None:
        """Ask the next one from now on."""
        self._index = (self._index + 1) % len(self._choices)


Ask = Callable[[int, str | None], PendingPage]
"""Asks for a page of so many rows, of the node with this host id, None: of any. Raises as `PendingPage.get`."""


def asking(source: PageSource, statement: str, token_range: TokenRange, state: bytes | None = None) -> Ask:
    """What asks for a range's page behind `state`."""
    return lambda rows, host: source.request(statement, token_range, rows, state, host)


class PageReader:
    """Gets pages: with fewer rows where that may help, of other nodes, and after pauses.

    A page is not given up before it was asked for row by row.
    """

    def __init__(self, size: PageSize, patience: Patience, clock: Clock, *, stays: bool = False) -> None:
        """`stays`: the first replica alone is asked, and given up soon: whoever plans knows better."""
        self._size = size
        self._patience = patience
        self._clock = clock
        self._stays = stays

    def page(self, subject: str, ask: Ask, hosts: Hosts, pending: PendingPage | None = None) -> Page:
        """A page; `pending` is one that was asked for already. `subject` says what it is of, for people.

        Raises UnreadableError where replicas fail at it, a ServiceError for other faults, both after all attempts.
        """
        failures = 0
        while True:
            try:
                return (pending or ask(self._size.rows, hosts.current)).get()
            except PageError as error:
                pending, smaller = None, error.fault in _FEWER_ROWS and self._size.halve()
                failures += not smaller
                seconds = self._patience.first_seconds if smaller else self._pause(failures, error.fault)
                if seconds is None:
                    raise _given_up(subject, failures, error) from error
                if not smaller and error.fault in _ELSEWHERE and not self._stays:
                    hosts.next()
                level = logging.INFO if smaller else logging.WARNING
                words = f"could not read {subject}, {self._size.rows} rows a page next: {error}"
                log.log(level, "%s", with_next_try(words, seconds))
                self._clock.wait(seconds)

    def _pause(self, failures: int, fault: Fault) -> float | None:
        if self._stays and fault is Fault.UNREACHABLE and failures >= _UNREACHABLE_ATTEMPTS:
            return None
        return self._patience.wait(failures, fault)


_FEWER_ROWS: Final = (Fault.TIMEOUT, Fault.FAILED)
"""What fewer rows may mend."""
_ELSEWHERE: Final = (Fault.UNREACHABLE, Fault.FAILED)
"""What another node may do better."""


def _given_up(subject: str, failures: int, error: PageError) -> ServiceError:
    if error.fault is not Fault.FAILED:
        return ServiceError(f"{subject} cannot be read after {failures} attempts: {error}")
    advice = _TOMBSTONES if "tombstone" in str(error).lower() else _DAMAGED
    return UnreadableError(f"{subject} cannot be read, not even a row at a time: {error}; {advice}")


class RangeReader:
    """Reads ranges of a table, "keyspace.name", one after the other; of one task."""

    def __init__(
        self,
        source: PageSource,
        table: str,
        statement: str,
        size: PageSize,
        rate: RowRate,
        patience: Patience,
        clock: Clock,
        *,
        stays: bool = False,
    ) -> None:
        """`stays` as PageReader has it, of each range."""
        self._source = source
        self._table = table
        self._statement = statement
        self._size = size
        self._rate = rate
        self._pages = PageReader(size, patience, clock, stays=stays)
        self._clock = clock

    def pages(self, splits: Iterable[Split]) -> Iterator[Page]:
        """The pages of the splits that have rows. Raises ServiceError where one does not come after all attempts."""
        for split in splits:
            yield from self.pages_of(split)

    def pages_of(self, split: Split, state: bytes | None = None) -> Iterator[Page]:
        """The pages of a split, from `next_page` of an earlier page on, or all of them.

        Raises ServiceError, and PageStateError where no node takes that page's place any more.
        """
        hosts = Hosts(split.replicas)
        pending: PendingPage | None = None
        subject = f"tokens ({split.range.start}, {split.range.end}] of {self._table}"
        while True:
            page = self._pages.page(subject, asking(self._source, self._statement, split.range, state), hosts, pending)
            pending, state = None, page.next_page
            self._size.took(page.rows, page.octets)
            seconds = self._rate.wait(page.rows, self._clock.now())
            if state is not None and not seconds:
                # The node reads the next page while this one is made into Arrow: still one request at a time.
                pending = self._ahead(split.range, state, hosts)
            if page.rows:
                yield page
            if seconds:
                self._clock.wait(seconds)
            if state is None:
                return

    def _ahead(self, token_range: TokenRange, state: bytes, hosts: Hosts) -> PendingPage | None:
        try:
            return self._source.request(self._statement, token_range, self._size.rows, state, hosts.current)
        except PageError:
            return None  # asked again where it is needed, which then waits and reports
