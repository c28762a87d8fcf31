"""Real Cassandra and Kafka as child processes of this machine, for the demo and the tests."""
