"""Parked mutations published by hand, by definitions that the agent does not have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from tailrace.agent.parts import Capture, Publisher, Routing, reread
from tailrace.changes.transcode import Message
from tailrace.commitlog.entry import Entry
from tailrace.errors import HeldError, UnknownTableError
from tailrace.publish.record import size_of
from tailrace.state.parked import Parked, ParkingLot
from tailrace.state.resume import Resume
from tailrace_common.kafka import Pace
from tailrace_schemas.errors import DecodeError

_MOST: Final = 5000


@dataclass(slots=True)
class Outcome:
    """What came of it: mutations published with so many changes, those that wait on by reason, those that are gone."""

    mutations: int = 0
    changes: int = 0
    left: Counter[str] = field(default_factory=Counter)
    lost: int = 0


def publish_parked(
    publisher: Publisher,
    capture: Capture,
    routing: Routing,
    messages: Callable[[Entry], list[Message]],
    resume: Resume,
    chosen: Callable[[Parked], bool],
    pace: Pace,
) -> Outcome:
    """Publish what can be of the lots that are `chosen`, in transactions that take it off the record at once.

    `resume` is the host's record as the publisher has started from it; the publisher goes by `pace`. What still nothing
    explains waits on; so does what is gone, for the agent to report. Raises ServiceError.
    """
    lot, outcome, sent, sent_bytes = ParkingLot(resume.parked, 0), Outcome(), 0, 0
    lots = [parked for parked in lot.lots if chosen(parked)]
    lost: dict[Parked, tuple[int, ...]] = {}
    for entry, parked in reread(capture, lots, lost):
        try:
            records = routing.records(messages(entry))
        except (UnknownTableError, HeldError, DecodeError) as error:
            outcome.left[str(error)] += 1
            continue
        size = size_of(records)
        if sent and (sent >= _MOST or sent_bytes + size > pace.limit):
            publisher.commit(replace(resume, parked=lot.lots), ())
            sent = sent_bytes = 0
        if not sent and not pace.suits(size):
            publisher.close()
            publisher.start()  # with transactions that may last as long as this one needs
        publisher.send_all(records)
        lot.remove(parked, (entry.offset,))
        outcome.mutations += 1
        outcome.changes += len(records)
        sent, sent_bytes = sent + len(records), sent_bytes + size
    outcome.lost = sum(map(len, lost.values()))
    if lot.changed:
        publisher.commit(replace(resume, parked=lot.lots), ())
    return outcome
