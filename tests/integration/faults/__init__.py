"""Faults of everything around the agent, and of itself, on real services: after each, Kafka has what the log has."""
