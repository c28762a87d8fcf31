"""Tests against real Cassandra, Kafka and Spark, which the run starts once."""
