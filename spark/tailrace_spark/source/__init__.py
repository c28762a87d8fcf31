"""Changes out of Kafka: records read, decoded, one copy of each, with their streams."""
