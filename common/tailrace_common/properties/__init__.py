"""Properties of other programs (librdkafka, Java's clients, Spark) that the settings pass through."""
