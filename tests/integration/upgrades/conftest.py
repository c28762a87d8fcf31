"""The last version's programs, built once."""

from __future__ import annotations

import pytest

from tests.upgrades.former import former_program, missing


@pytest.fixture(scope="session")
def former(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """What Python is told to run as the last version's `tailrace`."""
    if words := missing():
        pytest.skip(words)
    return former_program(tmp_path_factory.mktemp("former"))
