"""Properties are tried with few and always the same examples in one profile, and with many others in the other."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.properties import FACTOR, VARIABLE

PROGRAM = """
from hypothesis import settings
from tests.properties import examples, load_profile
load_profile()
print(settings.default.max_examples, settings.default.derandomize, examples(50))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("profile", "words"), [("", "40 True 50"), ("quick", "10 True 12"), ("long", f"{40 * FACTOR} False {50 * FACTOR}")]
)
def test_the_variable_chooses_the_profile(pytestconfig: pytest.Config, profile: str, words: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=pytestconfig.rootpath,
        env={VARIABLE: profile, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    assert run.stdout.strip() == words
