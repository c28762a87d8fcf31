"""The HTTP API: the operations on subscriptions for whoever has a key."""
