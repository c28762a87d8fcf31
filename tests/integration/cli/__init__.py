"""Commands against real services."""
