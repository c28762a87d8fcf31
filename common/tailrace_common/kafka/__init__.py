"""Kafka as both halves read and write it: partitions to their ends, transactions and plain appends.

The importer of confluent_kafka for what both halves do; the agent's own topics and logs are in its half.
"""

from __future__ import annotations

from tailrace_common.kafka.fetch import RecordFetcher
from tailrace_common.kafka.outgoing import Outgoing, Sizes
from tailrace_common.kafka.pace import SUPPOSED, Pace
from tailrace_common.kafka.producer import KafkaProducer, StoppedError
from tailrace_common.kafka.reader import (
    DEFAULT_TIMEOUT_SECONDS,
    READING,
    PartitionReader,
    Record,
    TopicReader,
    read_to_end,
)
from tailrace_common.kafka.topics import PartitionEnds, StartOffsets, TopicState, TopicStates
from tailrace_common.kafka.transactions import KafkaAppends, KafkaTransactions

__all__ = [
    "DEFAULT_TIMEOUT_SECONDS",
    "READING",
    "SUPPOSED",
    "KafkaAppends",
    "KafkaProducer",
    "KafkaTransactions",
    "Outgoing",
    "Pace",
    "PartitionEnds",
    "PartitionReader",
    "Record",
    "RecordFetcher",
    "Sizes",
    "StartOffsets",
    "StoppedError",
    "TopicReader",
    "TopicState",
    "TopicStates",
    "read_to_end",
]
