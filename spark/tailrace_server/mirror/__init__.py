"""Subscriptions in `<prefix>.subscriptions`, a compacted topic from which a meta database can be rebuilt."""
