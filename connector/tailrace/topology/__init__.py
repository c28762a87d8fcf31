"""Watching the ring and proposing generations."""
