"""Our agent beside Debezium's Cassandra connector: the same segments, the same Cassandra, the same Kafka."""
