"""What holds for every test of the run."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# How long an example, or making it, takes says something about the other work of the machine, nothing about the code.
settings.register_profile("tailrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tailrace")


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """A command that runs in the test's process sets logging up, to a stream that is closed when its test is over."""
    root = logging.getLogger()
    handlers = list(root.handlers)
    yield
    for handler in set(root.handlers) - set(handlers):
        root.removeHandler(handler)
    for handler in set(handlers) - set(root.handlers):
        root.addHandler(handler)
