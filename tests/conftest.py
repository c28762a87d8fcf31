"""What holds for every test of the run."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes says something about the machine's other work, and nothing about the code.
settings.register_profile("tailrace", deadline=None)
settings.load_profile("tailrace")
