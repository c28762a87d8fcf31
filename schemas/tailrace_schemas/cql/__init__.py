"""CQL types and values: type strings to types, Cassandra bytes to Python values and back, Cassandra's orders."""
