"""How many examples a property is tried with: few and always the same in `make test`, many others in `make test-all`.

TAILRACE_TEST_PROPERTIES chooses: `long` for the latter, `quick` for `make quick`'s.
"""

from __future__ import annotations

import os
from typing import Final

from hypothesis import HealthCheck, settings

VARIABLE: Final = "TAILRACE_TEST_PROPERTIES"
LONG: Final = os.environ.get(VARIABLE) == "long"
FACTOR: Final = 10
"""So many times as many examples as `make test` has the long profile."""
_QUICK: Final = 4
"""And so many times fewer the quick one."""
_EXAMPLES: Final = 40


def examples(number: int) -> int:
    """For a property that is slow, or needs more examples than others: so many of them in `make test`."""
    if os.environ.get(VARIABLE) == "quick":
        return max(1, number // _QUICK)
    return number * FACTOR if LONG else number


def load_profile() -> None:
    """Let pytest and Hypothesis know.

    How long an example, or making it, takes says something about the other work of the machine, nothing about the code.
    Of several failures one is reported: a group of them is no AssertionError, as tests.breakages wants it.
    """
    settings.register_profile(
        "tailrace",
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        report_multiple_bugs=False,
        max_examples=examples(_EXAMPLES),
        derandomize=not LONG,
    )
    settings.load_profile("tailrace")


__all__ = ["FACTOR", "LONG", "VARIABLE", "examples", "load_profile"]
