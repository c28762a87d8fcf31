"""What holds for every test of the run."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How long an example, or making it, takes says something about the other work of the machine, nothing about the code.
settings.register_profile("tailrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tailrace")
