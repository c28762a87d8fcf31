"""Dead letters: what any sink sets aside goes into one compacted topic, is listed there, and leaves it by a tombstone.

A record has one letter of a sink, under the sink's name and the record's place (docs/reference/topics.md). A sink puts
its letters before what it writes counts. So none is lost; what a batch set aside that was then written otherwise may
stay listed.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from tailrace_common.closing import Closing
from tailrace_common.kafka import KafkaAppends, PartitionReader, Record, RecordFetcher, Sizes
from tailrace_common.kafka.outgoing import WithHeaders
from tailrace_common.kafka.topics import TopicMaker
from tailrace_common.properties.passthrough import Scalar
from tailrace_common.settings import Settings, TopicSettings
from tailrace_schemas.change_json import compact_json
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.topics import Internal, internal_topic
from tailrace_spark.batch.delivery import DeadLetter, RecordId, RecordKey
from tailrace_spark.sinks.worker_cache import WorkerCache

log = logging.getLogger("tailrace_spark")

_SECONDS: Final = 30
_AROUND: Final = 1024  # of a record, besides its value


class Letters(Protocol):
    """Where a sink puts its dead letters, on the driver and in tasks: it can be pickled."""

    def put(self, letters: Sequence[DeadLetter]) -> None:
        """Keep them: they are kept when this returns. Of a record the newer one stays. Raises ServiceError."""


class LetterBox(Protocol):
    """The dead letters of one sink, as they are replayed. Raises ServiceError, and SettingsError for a later form."""

    def list(self, after: RecordId | None, limit: int) -> Sequence[DeadLetter]:
        """At most `limit` of those behind `after`, by topic, partition and offset; None: from the first one on."""

    def remove(self, letters: Sequence[DeadLetter]) -> int:
        """Remove those of these that were not put again since they were listed; how many."""


@dataclass(frozen=True, slots=True)
class LoggedLetters:
    """Of a sink that no stream's settings opened: its letters are in the log alone."""

    def put(self, letters: Sequence[DeadLetter]) -> None:
        """As Letters says, but for that."""
        log_put(letters, "this log alone")


LOGGED: Final = LoggedLetters()


@dataclass(frozen=True, slots=True)
class LetterTopic:
    """As Letters, in the stream's own Kafka. Equal ones share a producer of their process."""

    kafka: Mapping[str, Scalar] = field(repr=False)
    topics: TopicSettings
    sink: str

    @classmethod
    def of(cls, settings: Settings, sink: str) -> LetterTopic:
        """That of a sink of these settings."""
        return cls(settings.kafka.reveal(), settings.topics, sink)

    @property
    def name(self) -> str:
        """The topic's."""
        return internal_topic(self.topics.prefix, Internal.SINK_LETTERS)

    def reach(self) -> None:
        """Make the topic where it is missing. Raises SettingsError where it may not be made, ServiceError."""
        TopicMaker(self.kafka).ensure_planned(
            self.topics.internal_plan(Internal.SINK_LETTERS), create=self.topics.create
        )

    def prepare(self) -> None:
        """As `reach`, before a stream begins; where Kafka does not answer, the first letter waits for it."""
        try:
            self.reach()
        except ServiceError as error:
            log.warning("could not look for topic %s, which dead letters will need: %s", self.name, error)

    def put(self, letters: Sequence[DeadLetter]) -> None:
        """As Letters says. A letter that is larger than the topic takes is kept without its bytes."""
        if letters:
            self._send([(letter.record_id.key, self._value(letter)) for letter in letters])
            log_put(letters, f"topic {self.name}")

    def remove(self, keys: Iterable[RecordKey]) -> None:
        """Have no letter of these records any more. Raises ServiceError."""
        self._send([(key, None) for key in keys])

    def _value(self, letter: DeadLetter) -> bytes:
        value = json.dumps(letter.to_json(), ensure_ascii=False).encode()
        if len(value) > self.topics.max_message_bytes - _AROUND:
            value = json.dumps(replace(letter, message=b"").to_json(), ensure_ascii=False).encode()
        return value

    def _send(self, values: Sequence[tuple[RecordKey, bytes | None]]) -> None:
        if values:
            with _PRODUCERS.borrowed(replace(self, sink="")) as producer:
                records = [WithHeaders(self.name, 0, _key(self.sink, key), value, ()) for key, value in values]
                producer.send(records)


class _Producer:
    """That of a process; the topic is there when it is made."""

    def __init__(self, topic: LetterTopic) -> None:
        topic.reach()
        self._topic = topic
        self._lock = threading.Lock()
        self._appends: KafkaAppends | None = None

    def send(self, records: Sequence[WithHeaders]) -> None:
        """Have Kafka acknowledge all of them."""
        with self._lock:
            if self._appends is None:
                sizes = Sizes(largest=self._topic.topics.max_message_bytes)
                self._appends = KafkaAppends(self._topic.kafka, clock=time.monotonic, timeout=_SECONDS, sizes=sizes)
                self._appends.open()
            try:
                self._appends.send_all(records)
                self._appends.end()
            except BaseException:
                self._close()
                raise

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        appends, self._appends = self._appends, None
        if appends is not None:
            appends.close()


_PRODUCERS: Final = WorkerCache(_Producer)


class LetterReader(Closing):
    """As LetterBox. It reads on at each call: a stream may put letters meanwhile."""

    def __init__(self, topic: LetterTopic) -> None:
        self._topic = topic
        self._maker = TopicMaker(topic.kafka)
        self._reader = PartitionReader(topic.kafka, topic.name, 0)
        self._records = RecordFetcher(topic.kafka)
        self._offsets: dict[RecordKey, int] = {}
        self._listed: dict[RecordKey, int] = {}
        self._exists = False

    def list(self, after: RecordId | None, limit: int) -> Sequence[DeadLetter]:
        self._read_on()
        letters: list[DeadLetter] = []
        for key in sorted(key for key in self._offsets if after is None or key > after.key):
            if len(letters) == limit:
                break
            value = self._records.value(self._topic.name, 0, self._offsets[key])
            if value is not None:  # else a newer one is there by now, and compaction was quick
                letters.append(DeadLetter.from_json(json.loads(value), self._topic.name))
                self._listed[key] = self._offsets[key]
        return letters

    def remove(self, letters: Sequence[DeadLetter]) -> int:
        self._read_on()
        keys = [letter.record_id.key for letter in letters]
        unchanged = [key for key in keys if self._offsets.get(key) == self._listed.get(key)]
        self._topic.remove(unchanged)
        return len(unchanged)

    def _read_on(self) -> None:
        self._exists = self._exists or self._topic.name in self._maker.partitions()
        if self._exists:
            for record in self._reader.read_to_end():
                self._take(record)

    def _take(self, record: Record) -> None:
        sink, *record_key = json.loads(record.key or b"[null]")
        if sink != self._topic.sink:
            return
        topic, partition, offset = record_key
        if record.value is None:
            self._offsets.pop((topic, partition, offset), None)
        else:
            self._offsets[topic, partition, offset] = record.offset

    def close(self) -> None:
        """Leave Kafka."""
        self._reader.close()
        self._records.close()


def _key(sink: str, key: RecordKey) -> bytes:
    return compact_json([sink, *key]).encode()


def log_put(letters: Sequence[DeadLetter], store: str) -> None:
    """Warn of records that a sink has set aside: how many, where they are, and the first one's place and reason."""
    if letters:
        topic, partition, offset = letters[0].record_id.key
        log.warning(
            "%d records are dead letters in %s, all others go on. After the cause is fixed: tailrace sink-letters "
            "replay, or of a subscription: tailrace subscriptions NAME --letters --replay. "
            "First: %s, partition %d, offset %d: %s",
            len(letters), store, topic, partition, offset, letters[0].reason,
        )  # fmt: skip
