"""Dead letters of a Kafka sink, read back from their topic and sent again.

Of an append-only topic nothing is taken away: a later record of the same place says that it was sent (`replayed`), in
the transaction that has the change. So a letter waits where the last record of its place is a letter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

from tailrace_common.kafka import KafkaTransactions, PartitionReader, RecordFetcher
from tailrace_common.kafka.topics import TopicMaker
from tailrace_schemas.errors import SettingsError
from tailrace_spark.batch.delivery import DeadLetter, RecordId, RecordKey, Summary
from tailrace_spark.sinks.changelog.replayable import page
from tailrace_spark.sinks.changelog.sink import Batch, encoded, place_value
from tailrace_spark.sinks.kafka.avro import Registry
from tailrace_spark.sinks.kafka.outlet import Config, KafkaBatch, KafkaOutlet, KafkaTarget, Sent, transactions

REPLAYED: Final = "replayed"


class _Known:
    """Which letters of a sink wait, and where in the topic each stands; reads on from where it was."""

    def __init__(self, config: Config, target: KafkaTarget) -> None:
        self._target = target
        self._topics = TopicMaker(config)
        self._reader = PartitionReader(config, target.dead_letters, 0)
        self._records = RecordFetcher(config)
        self._offsets: dict[RecordKey, int] = {}
        self._there = False

    def waiting(self) -> dict[RecordKey, int]:
        """The offset of each letter's record, by place. Open transactions are waited for. Raises ServiceError."""
        self._there = self._there or self._target.dead_letters in self._topics.partitions()
        if not self._there:
            return {}
        for record in self._reader.read_to_end():
            value = json.loads(record.value or b"{}")
            if value.get("sink") != self._target.name:
                continue  # sinks of one prefix may share the topic
            place = value["topic"], value["partition"], value["offset"]
            if value.get(REPLAYED) is True:
                self._offsets.pop(place, None)
            else:
                self._offsets[place] = record.offset
        return self._offsets

    def letter(self, place: RecordKey) -> DeadLetter | None:
        """One of them; None where the topic has forgotten it just now."""
        value = self._records.value(self._target.dead_letters, 0, self._offsets[place])
        if value is None:
            return None
        found = json.loads(value)
        schema, message = bytes.fromhex(found["schema"] or ""), bytes.fromhex(found["message"] or "")
        return DeadLetter(RecordId(*place, schema), found["reason"], message)

    def close(self) -> None:
        self._reader.close()
        self._records.close()


class ReplayingKafkaOutlet(KafkaOutlet):
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
        self._known: _Known | None = None
        self._replaying: KafkaTransactions | None = None

    def letters(self, after: RecordId | None, most: int) -> Sequence[DeadLetter]:
        """As DeadLetterSink has it; those that the topic has not forgotten."""
        known = self._letters()
        waiting = known.waiting()
        found: list[DeadLetter] = []
        while len(found) < most and (places := page(waiting, after, most - len(found))):
            found += [letter for letter in map(known.letter, places) if letter is not None]
            after = RecordId(*places[-1])
        return found

    def begin_again(self, letters: Sequence[DeadLetter]) -> Batch:
        """As LetterOutlet has it. The first one fences another replay that runs."""
        if self._aim.debezium:
            raise SettingsError(
                f'sink.{self._aim.name}: format = "debezium" needs the rows before and after a change, which a letter '
                "has no more: read the topics again, into a sink of another name"
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
        waiting = self._letters().waiting()
        reasons = {one.record_id.key: one.reason for one in letters if one.record_id.key in waiting}
        return _Again(self, self._replaying, self._aim, reasons)

    def abandon(self) -> None:
        """As KafkaOutlet's, of both."""
        producer, self._replaying = self._replaying, None
        if producer is not None:
            producer.close()
        super().abandon()

    def close(self) -> None:
        """As KafkaOutlet's, and the letters'."""
        super().close()
        if self._known is not None:
            self._known.close()
            self._known = None

    def _letters(self) -> _Known:
        if self._known is None:
            self._known = _Known(self._own, self._aim)
        return self._known


class _Again(KafkaBatch):
    """One transaction of letters, by the reasons that they have now: it moves no partition."""

    def __init__(
        self, outlet: KafkaOutlet, producer: KafkaTransactions, target: KafkaTarget, reasons: dict[RecordKey, str]
    ) -> None:
        super().__init__(outlet, producer, target, {})
        self._aim = target
        self._reasons = reasons
        self._kept: set[RecordKey] = set()

    def is_out(self, place: RecordId) -> bool:
        return place.key not in self._reasons

    def letter(self, letter: DeadLetter) -> None:
        """It is one already: the topic is told where the reason is another."""
        self._kept.add(letter.record_id.key)
        if letter.reason != self._reasons[letter.record_id.key]:
            super().letter(letter)

    def commit(self) -> Summary:
        return replace(super().commit(), dead_letters=len(self._kept))

    def notes(self) -> Iterator[Sent]:
        yield from self._done(self._reasons.keys() - self._kept)

    def _done(self, places: Collection[RecordKey]) -> Iterator[Sent]:
        for topic, partition, offset in sorted(places):
            value = {**place_value(RecordId(topic, partition, offset)), "sink": self._aim.name, REPLAYED: True}
            yield Sent(self._aim.dead_letters, 0, None, encoded(value))
