"""Changes as messages of AMQP 0-9-1. Nothing here connects."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final

from tailrace_common.sections.template import fit
from tailrace_spark.sinks.changelog.routes import Route, RouteError
from tailrace_spark.sinks.changelog.sink import OutgoingRecord, key_of
from tailrace_spark.sinks.rabbitmq.settings import LONGEST_NAME

_LATEST: Final = 253_402_300_799  # the end of the year 9999, beyond which clients cannot say a date

Delivery = tuple[str, tuple[str, str]]
"""A message's id and its route: an exchange ("": the default one, whose routing keys are queues) and a routing key."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message: what is the same, however often it comes. Of one `lane` one message at a time is under way.

    Its `properties` are named as the library has them.
    """

    delivery: Delivery
    lane: str
    properties: Mapping[str, object]
    body: bytes = field(repr=False)


def messages_of(
    record: OutgoingRecord, exchange: str, queues: Sequence[str], route: Route | None = None
) -> list[Message]:
    """A change as one message to the exchange; a truncation, which is of all keys, as one to each queue, of one id.

    It is routed by its partition key as JSON. With a `route` all go to the exchange, by that. Raises as Route does, and
    RouteError for too long a key.
    """
    record_id, key = record.record_id, key_of(record, primary=False)
    if route is not None:
        targets = [(exchange, _required(route.of(record.change)))]
    else:
        targets = [("", queue) for queue in queues] if key is None else [(exchange, fit(key.decode(), LONGEST_NAME))]
    # A topic's name has no character that JSON escapes.
    record_key = f'["{record_id.topic}",{record_id.partition},{record_id.offset}]'
    identity = hashlib.blake2b(record_key.encode(), digest_size=16).hexdigest()
    seconds = record.written // 1_000_000
    properties = {
        "content_type": "application/json",
        "application_headers": {
            "topic": record_id.topic,
            "partition": record_id.partition,
            "offset": record_id.offset,
            "table": str(record.change.table),
        },
        "delivery_mode": 2,  # persistent
        "message_id": identity,
        "timestamp": seconds if 0 <= seconds <= _LATEST else None,
        "type": f"tailrace.change.{record.change.op.value}",
        "app_id": "tailrace",
    }
    return [
        Message((identity, target), target[1] if key is None else key.decode(), properties, record.json)
        for target in targets
    ]


def rounds_of(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """The messages in as few rounds as can be: in each at most one of a lane, those of a lane in their order."""
    lanes: dict[str, list[Message]] = {}
    for message in messages:
        lanes.setdefault(message.lane, []).append(message)
    for together in zip_longest(*lanes.values()):
        yield [message for message in together if message is not None]


def _required(key: str) -> str:
    if len(key.encode()) > LONGEST_NAME:
        raise RouteError(f"its routing key would have more than {LONGEST_NAME} bytes")
    return key
