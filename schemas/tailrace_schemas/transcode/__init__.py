"""Cassandra's bytes to Avro's, by plans made once per table shape, without Python objects in between."""
