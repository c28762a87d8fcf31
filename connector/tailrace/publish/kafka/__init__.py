"""Kafka as the agent writes it: its publisher, acknowledged logs, topics. Imports confluent_kafka."""

from __future__ import annotations

from tailrace.publish.kafka.publisher import KafkaPublisher, Tenure
from tailrace.publish.kafka.topics import KafkaLog, KafkaTopics

__all__ = ["KafkaLog", "KafkaPublisher", "KafkaTopics", "Tenure"]
