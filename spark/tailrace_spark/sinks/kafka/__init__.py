"""The Kafka sink: JSON, Avro, CloudEvents or Debezium's events into topics, in transactions."""
