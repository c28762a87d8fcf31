"""What Cassandra's driver brings into a process, and what it is kept from bringing."""

from __future__ import annotations

import subprocess
import sys

import pytest

AGENT = """
import sys
import tailrace.cli.agent
assert "cassandra.cluster" in sys.modules
assert "numpy" not in sys.modules
import numpy
assert numpy.int64(2) == 2
"""
AFTER = """
import sys
import numpy
import tailrace.driver
assert sys.modules["numpy"] is numpy
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", [AGENT, AFTER], ids=["agent", "numpy first"])
def test_an_agent_does_without_numpy_and_keeps_it_from_nobody(program: str) -> None:
    """It takes 12 MB, in every agent of an installation that has Spark's half too."""
    pytest.importorskip("numpy")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr) == (0, "")
