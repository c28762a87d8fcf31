"""What this host has lost: recorded once in `.progress`, and shown in health until somebody acknowledges it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from tailrace.agent.parts import Parts, ProgressLog, ProgressRecord, Publisher
from tailrace.publish.losses import cause_of, decode_loss, loss_id, loss_record, loss_words
from tailrace.state.loss import Loss
from tailrace_schemas.errors import CorruptError, ServiceError

_LOG: Final = logging.getLogger("tailrace.agent")
# How often an acknowledgement is looked for, and how long such a look may take, in seconds.
_LOOK_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.005


class Losses:
    """Outlives sessions with Kafka. One thread."""

    def __init__(self, parts: Parts, host: str) -> None:
        self._parts = parts
        self._host = host
        self._log: ProgressLog | None = None
        self._looked = parts.clock()
        self._open: dict[bytes, str] = {}  # those that nobody has acknowledged: words by key

    def begin(self, publisher: Publisher) -> None:
        """A session begins. The first one reads what earlier processes have recorded. Raises ServiceError."""
        if self._log is not None:
            return
        log = publisher.progress()
        self._read(log.read_to_end())
        self._log = log
        self._show()
        if self._open:
            _LOG.warning(
                "nobody has acknowledged %d losses of this host: `tailrace losses list` shows them", len(self._open)
            )

    def look(self) -> None:
        """Notice acknowledgements, from time to time, while there is something to acknowledge."""
        now = self._parts.clock()
        if self._log is None or now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        if not self._open:
            self._log.close()  # it connects again when it is needed
            return
        try:
            self._read(_available(self._log))
        except ServiceError as error:
            _LOG.debug("acknowledgements are looked for again by the next session: %s", error)
            self.close()
            return
        self._show()

    def tell(self, losses: Iterable[Loss]) -> None:
        """Show what was found just now."""
        for loss in losses:
            self._parts.health.degrade(cause_of(loss_id(loss)), loss_words(str(loss)))

    def records(self, losses: Sequence[Loss]) -> list[tuple[bytes, bytes]]:
        """Keys and values for `.progress`, for the transaction of the next offsets record."""
        if not losses:
            return []
        parts = self._parts
        tables = [str(table) for table in parts.schema.history.tracked() if parts.routing.publishes(table)]
        now = parts.milliseconds()
        return [loss_record(parts.cluster, self._host, loss, now, tables) for loss in losses]

    def committed(self, losses: Sequence[Loss]) -> None:
        """These are in Kafka."""
        for loss in losses:
            self._open[f"{self._parts.cluster}/{self._host}/{loss_id(loss)}".encode()] = str(loss)
        for kind, count in Counter(loss.kind.value for loss in losses).items():
            self._parts.health.count(**{kind: count})
        self._show()

    def close(self) -> None:
        """End the connection."""
        if self._log is not None:
            self._log.close()
        self._log = None

    def _read(self, records: Iterable[ProgressRecord]) -> None:
        for record in records:
            if record.key is not None:
                self._note(record.key, record.value)

    def _note(self, key: bytes, value: bytes | None) -> None:
        try:
            loss = None if value is None else decode_loss(key, value)
        except CorruptError as error:
            _LOG.warning("a loss record is skipped, as it cannot be read: %s", error)
            return
        if loss is not None and (loss.cluster, loss.host) != (self._parts.cluster, self._host):
            return
        if loss is not None and loss.acknowledged is None:
            self._open[key] = loss.words
            self._parts.health.degrade(loss.cause, loss_words(loss.words))
        elif self._open.pop(key, None) is not None:
            id = key.decode().removeprefix(f"{self._parts.cluster}/{self._host}/")
            self._parts.health.recover(cause_of(id))
            _LOG.info("loss %s was acknowledged", id)

    def _show(self) -> None:
        self._parts.health.gauge(unacknowledged_losses=len(self._open))


def _available(log: ProgressLog) -> Iterator[ProgressRecord]:
    while (record := log.poll(_POLL_SECONDS)) is not None:
        yield record
