"""Small plausible bugs, each with the tests that must notice it: `python -m tests.breakages`."""
