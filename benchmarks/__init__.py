"""Benchmarks of the hot paths: `python -m benchmarks`, or one module alone."""

import logging

# A retry is no news here, and its lines would stand in the tables.
logging.getLogger("stamina").setLevel(logging.ERROR)
