"""Readers of Tailrace's own topics: schemas, generations and progress."""
