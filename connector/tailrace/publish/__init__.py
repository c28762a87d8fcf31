"""Kafka: transactions, offsets, topics, the schema store."""
