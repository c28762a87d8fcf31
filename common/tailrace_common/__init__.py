"""What both halves do with the outside: settings, Kafka, the readers of our topics, Java, commands."""
