"""Kafka as the agent writes it: transactions or plain appends, acknowledged logs, topics. Imports confluent_kafka."""

from __future__ import annotations

from tailrace.publish.kafka.log import KafkaLog
from tailrace.publish.kafka.producer import Sizes
from tailrace.publish.kafka.publisher import KafkaPublisher, Tenure
from tailrace.publish.kafka.topics import KafkaTopics
from tailrace.publish.kafka.transactions import KafkaTransactions

__all__ = ["KafkaLog", "KafkaPublisher", "KafkaTopics", "KafkaTransactions", "Sizes", "Tenure"]
