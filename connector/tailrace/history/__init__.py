"""Which definition of a table, and which cdc flag, held at a position."""
