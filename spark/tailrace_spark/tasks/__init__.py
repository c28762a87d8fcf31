"""A micro-batch on Spark's executors: each Kafka partition's records are decoded, merged and written in a task."""
