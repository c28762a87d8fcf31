"""The units of systemd: command lines that parse, directories of the settings, and nothing that opens the sandbox."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from prometheus_client import ProcessCollector

from tailrace_common.settings import load_settings
from tests.unit.deploy.compose import command_faults

ROOT = Path(__file__).resolve().parents[3]
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))


def directives(unit: Path) -> dict[str, list[str]]:
    """The values of each directive, in order."""
    values: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            values.setdefault(name, []).append(value)
    return values


def test_there_is_a_unit_for_each_program() -> None:
    assert [unit.stem for unit in UNITS] == ["tailrace-agent", "tailrace-server", "tailrace-stream"]


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_starts_its_program_in_its_own_directory(unit: Path) -> None:
    program, values = unit.stem.removeprefix("tailrace-"), directives(unit)
    [line] = values["ExecStart"]
    words = shlex.split(line)
    assert words[:2] == ["/opt/tailrace/bin/tailrace", program]
    assert list(command_faults(["tailrace", *words[1:]])) == []
    assert values["WorkingDirectory"] == [f"/var/lib/{values['StateDirectory'][0]}"]
    assert values["ProtectSystem"] == ["strict"]
    assert "5" in values["RestartPreventExitStatus"][0] or program == "server"


def test_units_of_one_machine_share_no_directory() -> None:
    assert len({directives(unit)["StateDirectory"][0] for unit in UNITS}) == len(UNITS)


def test_the_agent_may_write_where_its_settings_say() -> None:
    [agent] = [unit for unit in UNITS if unit.stem == "tailrace-agent"]
    values, settings = directives(agent), load_settings(None, {}).agent
    assert settings.cdc_raw_directory.is_relative_to(values["ReadWritePaths"][0])
    assert settings.spool_directory.is_relative_to(values["WorkingDirectory"][0])
    assert values["User"] == ["cassandra"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_what_metrics_of_the_process_are_read_from_is_there(unit: Path) -> None:
    """Without /proc/stat the library leaves all process_... metrics out, and the panels of memory are empty."""
    assert list(ProcessCollector(proc="/nowhere", registry=None).collect()) == []
    assert directives(unit)["ProcSubset"] == ["all"]
