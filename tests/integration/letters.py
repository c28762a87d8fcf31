"""Dead letters in the topic of a real Kafka, as anybody reads it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tailrace.local import LocalKafka
from tailrace_common.kafka import TopicReader
from tailrace_common.kafka.topics import TopicMaker
from tailrace_common.settings import TopicSettings
from tailrace_spark.batch.delivery import DeadLetter
from tailrace_spark.sinks.letters import LetterTopic


def letters_in(kafka: LocalKafka, prefix: str) -> Sequence[DeadLetter]:
    """Those of all sinks of a prefix, by their places."""
    config, topic, last = {"bootstrap.servers": kafka.bootstrap}, f"{prefix}.sink-letters", dict[bytes, bytes]()
    if topic not in TopicMaker(config).partitions():
        return []
    with TopicReader(config, topic, beginning=True) as reader:
        last = {record.key or b"": record.value or b"" for _, record in reader.read_to_end()}
    letters = [DeadLetter.from_json(json.loads(value)) for value in last.values() if value]
    return sorted(letters, key=lambda letter: letter.record_id.key)


def topic_of(kafka: LocalKafka, prefix: str, sink: str = "local") -> LetterTopic:
    """Where a sink of that name puts them."""
    return LetterTopic({"bootstrap.servers": kafka.bootstrap}, TopicSettings(prefix=prefix), sink)
