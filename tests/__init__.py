"""Tests mirror the source; tests/integration runs against real services."""
