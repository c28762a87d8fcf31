"""The agent: reads one Cassandra node's commit log and publishes every change to Kafka."""
