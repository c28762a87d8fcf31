"""What earlier versions left on disk and in Kafka, recorded, for tests that start this version on it."""
