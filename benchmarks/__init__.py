"""Benchmarks of the hot paths: `python -m benchmarks`, or one module alone."""
