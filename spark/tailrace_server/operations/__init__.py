"""What operators do with subscriptions, whoever asks: checks of requests, operations, and their answers as JSON."""
