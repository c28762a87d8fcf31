"""Spark: topics to changes with stream ids, row state, and sinks."""
