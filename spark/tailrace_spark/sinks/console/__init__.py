"""The console: changes as lines or tables."""
