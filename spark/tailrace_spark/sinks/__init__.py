"""Sinks: one module each behind one protocol."""
