"""Java for Cassandra, Kafka and Spark: where one is found, and the archives (jars) that they need."""
