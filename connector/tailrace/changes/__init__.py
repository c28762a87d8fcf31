"""Mutations to changes: splitting into rows, deletions and ranges, order, digests."""
