"""Changes posted as JSON in batches: in order per key, in several lanes at once, refused ones set aside."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit
from zlib import crc32

from tailrace_schemas.change import Change
from tailrace_spark.batch.delivery import DeadLetter, MicroBatch, Summary
from tailrace_spark.sinks.changelog.routes import Route, RouteError, url_text
from tailrace_spark.sinks.changelog.sink import Batch, OutgoingRecord
from tailrace_spark.sinks.http.client import HttpSender, RefusedError
from tailrace_spark.sinks.http.settings import HttpSinkSettings
from tailrace_spark.sinks.letters import LOGGED, Letters

_HEAD: Final = b'{"changes":['
_TAIL: Final = b"]}"
_DOTS: Final = frozenset({".", ".."})
# Values of keys may be many: so many addresses, and no more, have changes that wait for a request.
_MOST_WAITING: Final = 1000

DeadLetters = tuple[DeadLetter, ...]
Answered = dict[str, DeadLetters]
"""By the id of a request that was answered, what of it was refused."""


class HttpOutlet:
    """Sends each batch in requests that are the same when it comes again, each with an id that says so.

    What was answered of a batch that failed is not sent again by this process.
    """

    def __init__(self, sender: HttpSender, settings: HttpSinkSettings, letters: Letters = LOGGED) -> None:
        self._sender = sender
        self._settings = settings
        self._letters = letters
        self._route = Route(settings.url, url_text)
        self._threads = ThreadPoolExecutor(settings.lanes, thread_name_prefix="tailrace-http")
        self._answered: Answered = {}
        self._answered_by: tuple[str, int] | None = None

    def reach(self) -> None:
        """See that something answers."""
        self._sender.reach(self._route.of_anything())

    def url_of(self, change: Change) -> str:
        """Where a change is posted. Raises RouteError, and TableRefusedError as Route does."""
        url = self._route.of(change)
        # Clients and servers resolve these, so that a value would choose another directory (RFC 3986, 5.2.4).
        if self._route.varies and not _DOTS.isdisjoint(urlsplit(url).path.split("/")):
            raise RouteError("a value of its key makes a step of the path that is . or .., which names another path")
        return url

    def begin(self, batch: MicroBatch) -> Batch:
        """As Outlet says. What was answered is remembered until all of its batch is out, or another one comes."""
        if self._answered_by != (batch.stream, batch.number):
            self._answered_by = batch.stream, batch.number
            self._answered = {}
        return _Requests(self, all_of_batch=batch.here)

    @property
    def lanes(self) -> int:
        """The number of lanes."""
        return self._settings.lanes

    def is_full(self, lane: _Lane) -> bool:
        """Whether what waits in a lane makes a request."""
        settings = self._settings
        return len(lane.records) >= settings.batch_records or lane.size >= settings.batch_kibibytes << 10

    def submit(self, url: str, records: Sequence[OutgoingRecord]) -> Future[DeadLetters]:
        """Send one request in a thread; its result is what of it was refused. Raises ServiceError there."""
        return self._threads.submit(self._send, url, records)

    def _send(self, url: str, records: Sequence[OutgoingRecord]) -> DeadLetters:
        body = _HEAD + b",".join(record.json for record in records) + _TAIL
        identity = hashlib.blake2b(body, digest_size=16).hexdigest()
        if identity not in self._answered:
            self._answered[identity] = self._answer(url, records, body, identity)
        return self._answered[identity]

    def _answer(self, url: str, records: Sequence[OutgoingRecord], body: bytes, identity: str) -> DeadLetters:
        """What was refused of a request. One that is refused as a whole goes in halves, until it is known of which.

        A transaction is refused as a whole.
        """
        try:
            self._sender.send(url, body, identity)
        except RefusedError as error:
            middle = _middle(records)
            if middle == 0:
                return tuple(DeadLetter(record.record_id, str(error), record.message) for record in records)
            return self._send(url, records[:middle]) + self._send(url, records[middle:])
        return ()

    def settle(self, letters: Sequence[DeadLetter], *, all_of_batch: bool) -> None:
        """A share is out: keep its dead letters. Where it is the whole batch, forget its requests."""
        self._letters.put(letters)
        if all_of_batch:
            self._answered.clear()

    def close(self) -> None:
        """Let requests under way end, and leave."""
        self._sender.stop()
        self._threads.shutdown(cancel_futures=True)
        self._sender.close()


def _middle(records: Sequence[OutgoingRecord]) -> int:
    """Where a request is cut into two: between two transactions, as near to its middle as can be; 0: nowhere."""
    cuts = [index for index in range(1, len(records)) if records[index].first_id != records[index - 1].first_id]
    return min(cuts, key=lambda index: abs(index - len(records) // 2), default=0)


@dataclass(slots=True)
class _Lane:
    """What waits for the next request to an address, and the one under way: never two at once, for a key's order."""

    url: str
    records: list[OutgoingRecord] = field(default_factory=list)
    size: int = 0
    sent: Future[DeadLetters] | None = None


class _Requests(Batch):
    """One share. Where requests are cut follows from its records alone: they are the same when it comes again."""

    def __init__(self, outlet: HttpOutlet, *, all_of_batch: bool) -> None:
        super().__init__()
        self._outlet = outlet
        self._all_of_batch = all_of_batch
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._records = 0
        self._refused = 0

    def put(self, record: OutgoingRecord) -> None:
        key, url, size = record.change.key, self._outlet.url_of(record.change), len(record.json)
        self._records += 1
        # A truncation is of all keys: behind what was before it, ahead of what comes.
        if key is None or (len(self._lanes) >= _MOST_WAITING and record.first_id == record.record_id):
            self._flush()
            self._lanes.clear()
        lane_number = crc32(key or b"") % self._outlet.lanes
        lane = self._lanes.get((url, lane_number))
        if lane is None:
            lane = self._lanes[url, lane_number] = _Lane(url)
        lane.records.append(record)
        lane.size += size
        if key is None:
            self._flush()
        elif self._outlet.is_full(lane) and (record.transaction is None or record.transaction.ends):
            self._send(lane)

    def _send(self, lane: _Lane) -> None:
        self._await(lane)
        lane.sent = self._outlet.submit(lane.url, tuple(lane.records))
        lane.records.clear()
        lane.size = 0

    def _await(self, lane: _Lane) -> None:
        if lane.sent is not None:
            refused = lane.sent.result()
            self._refused += len(refused)
            self.aside += refused
            lane.sent = None

    def _flush(self) -> None:
        """Until everything so far is answered."""
        for lane in self._lanes.values():
            if lane.records:
                self._send(lane)
        for lane in self._lanes.values():
            self._await(lane)

    def commit(self) -> Summary:
        self._flush()
        self._outlet.settle(self.aside, all_of_batch=self._all_of_batch)
        return Summary(rows=self._records - self._refused, dead_letters=len(self.aside))

    def abandon(self) -> None:
        """Wait for the requests under way: none may arrive behind those of the next attempt."""
        for lane in self._lanes.values():
            if lane.sent is not None:
                lane.sent.exception()


@dataclass(frozen=True, slots=True)
class HttpOpener:
    """Makes the outlet of a worker process: a breaker, lanes and connections of its own."""

    name: str
    settings: HttpSinkSettings = field(repr=False)
    letters: Letters = LOGGED

    def open(self) -> HttpOutlet:
        """As Opener says."""
        return HttpOutlet(HttpSender(self.name, self.settings), self.settings, self.letters)
