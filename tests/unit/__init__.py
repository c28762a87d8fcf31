"""Tests without services."""
