"""Commands that talk to Kafka or Cassandra."""
