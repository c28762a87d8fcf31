"""Changes as messages of AMQP 0-9-1, and which of them may be published when. Nothing here connects."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from tailrace_spark.batch.delivery import RecordId
from tailrace_spark.sinks.changelog.routes import Route as KeyRoute
from tailrace_spark.sinks.changelog.routes import RouteError
from tailrace_spark.sinks.changelog.sink import OutgoingRecord, key_of

LONGEST_KEY: Final = 255  # a short string of AMQP 0-9-1, in bytes
_LATEST: Final = 253_402_300_799  # the end of the year 9999, beyond which clients cannot say a date

Route = tuple[str, str]
"""An exchange ("" is the default one, whose routing keys are names of queues) and a routing key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message: what is the same, however often it comes. `timestamp`: seconds since the epoch.

    Of one `lane` one message at a time is under way.
    """

    identity: str
    record_id: RecordId
    route: Route
    lane: str
    type: str
    timestamp: int | None
    headers: Mapping[str, str | int]
    body: bytes = field(repr=False)


def routing_key(record: OutgoingRecord) -> str | None:
    """What a change is routed by: its partition key as JSON; where that is too long, 64 hexadecimal digits of a digest.

    None for a truncation, which is of all keys.
    """
    key = key_of(record, primary=False)
    if key is None:
        return None
    return key.decode() if len(key) <= LONGEST_KEY else hashlib.blake2b(key, digest_size=32).hexdigest()


def identity(record_id: RecordId) -> str:
    """A change's `message_id`, made of its place alone: 32 hexadecimal digits."""
    # A topic's name has no character that JSON escapes.
    record_key = f'["{record_id.topic}",{record_id.partition},{record_id.offset}]'
    return hashlib.blake2b(record_key.encode(), digest_size=16).hexdigest()


def timestamp(record: OutgoingRecord) -> int | None:
    """The second of its write time; None for times that AMQP cannot say."""
    seconds = record.written // 1_000_000
    return seconds if 0 <= seconds <= _LATEST else None


def messages_of(
    record: OutgoingRecord, exchange: str, queues: Sequence[str], route: KeyRoute | None = None
) -> tuple[Message, ...]:
    """A change as one message to the exchange; a truncation as one to each queue, all with the same id.

    With a `route` a truncation goes to the exchange too. Raises as Route does, and RouteError for too long a key.
    """
    key = routing_key(record)
    routes = [("", queue) for queue in queues] if key is None else [(exchange, key)]
    if route is not None:
        routes = [(exchange, _required(route.of(record.change)))]
    record_id = record.record_id
    headers: dict[str, str | int] = {
        "topic": record_id.topic,
        "partition": record_id.partition,
        "offset": record_id.offset,
        "table": str(record.change.table),
    }
    return tuple(
        Message(
            identity=identity(record_id),
            record_id=record_id,
            route=to,
            lane=to[1] if key is None else key,
            type=f"tailrace.change.{record.change.op.value}",
            timestamp=timestamp(record),
            headers=headers,
            body=record.json,
        )
        for to in routes
    )


def _required(key: str) -> str:
    if len(key.encode()) > LONGEST_KEY:
        raise RouteError(f"its routing key would have more than {LONGEST_KEY} bytes")
    return key


class Lanes:
    """Messages that are not confirmed yet: of each lane one at a time is under way, the others wait behind it.

    For RabbitMQ may refuse one message and take the next: were both of one key under way, they would change places.
    """

    def __init__(self) -> None:
        self._lanes: dict[str, deque[Message]] = {}
        self._sent: dict[int, Message] = {}
        self._count = 0
        self.size = 0
        """Bytes of their bodies."""

    def __len__(self) -> int:
        return self._count

    def add(self, message: Message) -> bool:
        """Take one in; whether it may be published now."""
        lane = self._lanes.setdefault(message.lane, deque())
        lane.append(message)
        self._count += 1
        self.size += len(message.body)
        return len(lane) == 1

    def sent(self, tag: int, message: Message) -> None:
        """It was published, under a delivery tag of its channel; tags ascend."""
        self._sent[tag] = message

    @property
    def under_way(self) -> int:
        """How many were published and not answered."""
        return len(self._sent)

    def refuse(self, tag: int, *, multiple: bool) -> list[Message]:
        """RabbitMQ does not take one message, or all up to a tag: those. They stay at the heads of their lanes."""
        tags = list(takewhile(lambda sent_tag: sent_tag <= tag, self._sent)) if multiple else [tag]
        return [self._sent.pop(sent_tag) for sent_tag in tags if sent_tag in self._sent]

    def confirm(self, tag: int, *, multiple: bool) -> tuple[list[Message], list[Message]]:
        """RabbitMQ has taken one message, or all up to a tag: those, and those that may be published now."""
        done = self.refuse(tag, multiple=multiple)
        following: list[Message] = []
        for message in done:
            lane = self._lanes[message.lane]
            lane.popleft()
            self._count -= 1
            self.size -= len(message.body)
            if lane:
                following.append(lane[0])
            else:
                del self._lanes[message.lane]
        return done, following
