"""Records of internal topics that a commit writes beside the changes: losses, progress, schema changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tailrace.agent.losses import Losses
from tailrace.agent.parts import Limits, Parts
from tailrace.agent.progress import ProgressNotes
from tailrace.history.events import encode_event, event_key
from tailrace.state.loss import Loss
from tailrace.state.resume import Resume
from tailrace_schemas.position import Position
from tailrace_schemas.topics import Internal


class CommitNotes:
    """What is to be recorded with the next commit of a session."""

    def __init__(self, parts: Parts, limits: Limits, host: str, losses: Losses) -> None:
        self._parts = parts
        self._host = host
        self._losses = losses
        self._progress = ProgressNotes(
            parts.cluster, host, limits.progress_seconds, parts.clock, parts.milliseconds, parts.name
        )

    def complete(self, milliseconds: int) -> None:
        """Everything that had been released by then is in the next transaction, or in earlier ones."""
        self._progress.complete(milliseconds)

    def due(self, position: Position | None, caught_up: bool, durable: Position | None) -> bool:
        """Whether it is time for a record of progress."""
        return self._progress.due(position, caught_up, durable)

    def records(
        self, resume: Resume, losses: Sequence[Loss], caught_up: bool, durable: Position | None
    ) -> Iterator[tuple[Internal, bytes, bytes]]:
        """Topic, key and value of each record of the commit of `resume`."""
        for key, value in self._losses.records(losses):
            yield Internal.PROGRESS, key, value
        if (progress := self._progress.record(resume, caught_up, durable)) is not None:
            yield Internal.PROGRESS, *progress
        for event in self._parts.schema.events:
            yield Internal.SCHEMA_CHANGES, event_key(self._host, event), encode_event(self._host, event)

    def committed(self, losses: Sequence[Loss]) -> None:
        """These losses are in Kafka."""
        self._losses.committed(losses)
