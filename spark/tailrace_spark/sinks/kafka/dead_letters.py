"""Dead letters of a Kafka sink, read back from their topic and sent again.

Nothing is removed from an append-only topic. The transaction that sends the change also writes a later record of the
same place, which says so (`replayed`). So a dead letter is left where the last record of its place is one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tailrace_common.kafka import KafkaTransactions, PartitionReader, RecordFetcher
from tailrace_common.kafka.topics import TopicMaker
from tailrace_schemas.errors import SettingsError
from tailrace_spark.batch.dead_letters import page
from tailrace_spark.batch.delivery import (
    LETTER_FORMAT,
    DeadLetter,
    RecordId,
    RecordKey,
    Summary,
    require_letter_format,
)
from tailrace_spark.sinks.changelog.sink import Batch, encoded
from tailrace_spark.sinks.kafka.avro import Registry
from tailrace_spark.sinks.kafka.outlet import Config, KafkaBatch, KafkaOutlet, KafkaTarget, transactions
from tailrace_spark.sinks.kafka.record import KafkaRecord

REPLAYED: Final = "replayed"


class KafkaDeadLetters:
    """A DeadLetterReader: which dead letters of a sink are left, and where in the topic. Reads on at each call."""

    def __init__(self, config: Config, target: KafkaTarget) -> None:
        self._target = target
        self._topics = TopicMaker(config)
        self._reader = PartitionReader(config, target.dead_letters, 0)
        self._records = RecordFetcher(config)
        self._offsets: dict[RecordKey, int] = {}
        self._exists = False

    def offsets(self) -> Mapping[RecordKey, int]:
        """The offset in the topic of each dead letter. Open transactions are waited for.

        Raises ServiceError, and SettingsError where one is of a later version.
        """
        self._exists = self._exists or self._target.dead_letters in self._topics.partitions()
        if not self._exists:
            return {}
        for record in self._reader.read_to_end():
            value = json.loads(record.value or b"{}")
            if value.get("sink") != self._target.name:
                continue  # sinks of one prefix may share the topic
            require_letter_format(value, f"topic {self._target.dead_letters}")
            key = RecordId.from_json(value).key
            if value.get(REPLAYED) is True:
                self._offsets.pop(key, None)
            else:
                self._offsets[key] = record.offset
        return self._offsets

    def list(self, after: RecordId | None, limit: int) -> Sequence[DeadLetter]:
        """As DeadLetterReader says; those that the topic still has."""
        offsets = self.offsets()
        letters: list[DeadLetter] = []
        last = after
        while len(letters) < limit and (keys := page(offsets, last, limit - len(letters))):
            letters += [letter for letter in map(self._letter, keys) if letter is not None]
            last = RecordId(*keys[-1])
        return letters

    def _letter(self, key: RecordKey) -> DeadLetter | None:
        """None where the topic's retention has just deleted it."""
        value = self._records.value(self._target.dead_letters, 0, self._offsets[key])
        return None if value is None else DeadLetter.from_json(json.loads(value))

    def close(self) -> None:
        self._reader.close()
        self._records.close()


class ReplayableKafkaOutlet(KafkaOutlet):
    """As KafkaOutlet; its letters can be sent again, in transactions of an id of their own, while a stream writes."""

    def __init__(
        self,
        config: Config,
        target: KafkaTarget,
        open_producer: Callable[[Config, KafkaTarget], KafkaTransactions] | None = None,
        registry: Registry | None = None,
    ) -> None:
        super().__init__(config, target, open_producer, registry)
        self._own = dict(config)
        self._aim = target
        self._make = open_producer or transactions
        self._dead_letters: KafkaDeadLetters | None = None
        self._replaying: KafkaTransactions | None = None

    def dead_letters(self, after: RecordId | None, limit: int) -> Sequence[DeadLetter]:
        """As DeadLetterSink has it; those that the topic still has."""
        return self._reader().list(after, limit)

    def begin_replay(self, letters: Sequence[DeadLetter]) -> Batch:
        """As ReplayableOutlet has it. The first one fences another replay that runs."""
        if self._aim.debezium:
            raise SettingsError(
                f'sink.{self._aim.name}: format = "debezium" needs the rows before and after a change, and a dead '
                "letter has none. Read the topics again, into a sink of another name"
            )
        self.renew()
        if self._replaying is None:
            self.ensure_topics()
            target = replace(self._aim, replays=True)
            producer = self._make(self._own, target)
            try:
                producer.open()
            except BaseException:
                producer.close()
                raise
            self._replaying = producer
        # Behind the fence: what an earlier replay committed is known now, and it commits no more.
        remaining = self._reader().offsets()
        reasons = {letter.record_id.key: letter.reason for letter in letters if letter.record_id.key in remaining}
        return _Replay(self, self._replaying, self._aim, reasons)

    def abandon(self) -> None:
        """As KafkaOutlet's, of both."""
        producer, self._replaying = self._replaying, None
        if producer is not None:
            producer.close()
        super().abandon()

    def close(self) -> None:
        """As KafkaOutlet's, and the letters'."""
        super().close()
        if self._dead_letters is not None:
            self._dead_letters.close()
            self._dead_letters = None

    def _reader(self) -> KafkaDeadLetters:
        if self._dead_letters is None:
            self._dead_letters = KafkaDeadLetters(self._own, self._aim)
        return self._dead_letters


class _Replay(KafkaBatch):
    """One transaction of letters, by the reasons that they have now: it moves no partition."""

    def __init__(
        self, outlet: KafkaOutlet, producer: KafkaTransactions, target: KafkaTarget, reasons: dict[RecordKey, str]
    ) -> None:
        super().__init__(outlet, producer, target, {})
        self._aim = target
        self._reasons = reasons
        self._kept: set[RecordKey] = set()

    def is_out(self, record_id: RecordId) -> bool:
        return record_id.key not in self._reasons

    def letter(self, letter: DeadLetter) -> None:
        """It is one already: the topic gets it again where the reason is another."""
        self._kept.add(letter.record_id.key)
        if letter.reason != self._reasons[letter.record_id.key]:
            super().letter(letter)

    def commit(self) -> Summary:
        return replace(super().commit(), dead_letters=len(self._kept))

    def notes(self) -> Iterator[KafkaRecord]:
        yield from self._replayed(self._reasons.keys() - self._kept)

    def _replayed(self, keys: Collection[RecordKey]) -> Iterator[KafkaRecord]:
        for key in sorted(keys):
            value = {**RecordId(*key).to_json(), "sink": self._aim.name, REPLAYED: True, "format": LETTER_FORMAT}
            yield KafkaRecord(self._aim.dead_letters, 0, None, encoded(value))
