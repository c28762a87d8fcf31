"""How much of the machine the units of systemd leave open, by systemd's own judgement."""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
from pathlib import Path

import pytest

_LOG = logging.getLogger("tailrace.test")
UNITS = sorted((Path(__file__).resolve().parents[3] / "deploy" / "systemd").glob("*.service"))
MOST_EXPOSED = 1.5
"""Of 10; systemd calls everything below 2 safe enough, and its own services are mostly between 2 and 9."""


@pytest.mark.long
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_units_are_closed_and_known_to_systemd(unit: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)]
    judged = subprocess.run(command, capture_output=True, text=True)
    exposure = re.search(r"Overall exposure level for \S+: (\d+\.\d+)", judged.stdout)
    assert exposure is not None, judged.stdout + judged.stderr
    _LOG.info(exposure[0])
    assert float(exposure[1]) <= MOST_EXPOSED, judged.stdout
    # Directives that this systemd does not know are warnings of `verify`; the program is not installed here.
    verified = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True)
    faults = [line for line in verified.stderr.splitlines() if unit.name in line and "is not executable" not in line]
    assert faults == []
