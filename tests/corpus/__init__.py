"""Corpora: random statements run against a real node, what it logged for them, and what it then answers."""
