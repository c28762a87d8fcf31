"""Publishing a proposal, and learning whether it won."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol
from uuid import UUID

from tailrace.topology.proposals import ONE_STREAM, EntrySettings, propose
from tailrace_common.generations import GenerationReader
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.generations import Proposal, PublishedGeneration, encode_proposal
from tailrace_schemas.ring import Ring

_LOG: Final = logging.getLogger("tailrace.topology")


class RecordLog(Protocol):
    """A topic of one partition that is only ever appended to."""

    def append(self, key: bytes, value: bytes) -> None:
        """Append one record; it is in the topic, once, when this returns. Raises ServiceError."""


def publish(proposal: Proposal, log: RecordLog, reader: GenerationReader) -> PublishedGeneration | None:
    """Append a proposal and read on to the end: the latest valid generation, ours or another's; None: none is.

    Two steps, description first, commit record last: whoever fails in between
    leaves chunks that nobody heeds. Raises ServiceError.
    """
    for key, value in encode_proposal(proposal):
        log.append(key, value)
    reader.refresh()
    latest = reader.latest
    if latest is not None:
        whose = "ours" if latest.uuid == proposal.uuid else "another proposer's"
        _LOG.info("generation %d is valid: %s", latest.timestamp, whose)
    return latest


def ensure_first(
    ring: Callable[[], Ring],
    log: RecordLog,
    reader: GenerationReader,
    *,
    now_ms: Callable[[], int],
    new_uuid: Callable[[], UUID],
    entries: EntrySettings = ONE_STREAM,
) -> PublishedGeneration:
    """The latest valid generation; where there is none, the first is made from the live ring.

    Any number of agents may do this at once and any of them may die meanwhile: the topic's order lets exactly one
    first generation be valid, and all return that one. `ring` is asked only when it is needed. Raises ServiceError,
    and RingError while a node joins, leaves or moves: try again later.
    """
    reader.refresh()
    latest = reader.latest
    if latest is None:
        latest = publish(propose(ring(), None, now_ms(), uuid=new_uuid(), entries=entries), log, reader)
    if latest is None:
        raise ServiceError(
            "the generations topic ends before the records that Kafka acknowledged: was it deleted and made anew?"
            " start the agent again"
        )
    return latest
