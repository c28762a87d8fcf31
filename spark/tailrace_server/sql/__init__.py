"""Subscriptions in SQL: statements are parsed, run as the same operations as commands, and written again."""
