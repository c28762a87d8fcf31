"""Every extra is tried alone, and what a user installs starts."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.tools import tool

ROOT = Path(__file__).resolve().parents[2]
_WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
import {modules}
"""


def installed(name: str, extras: frozenset[str]) -> set[str]:
    """The distributions that come with one, by their normalised names: itself, what it requires, and so on."""
    found, to_visit = set[tuple[str, frozenset[str]]](), [(name, extras)]
    while to_visit:
        distribution, wanted = to_visit.pop()
        if (distribution, wanted) in found:
            continue
        found.add((distribution, wanted))
        try:
            requirements = [Requirement(line) for line in requires(distribution) or ()]
        except PackageNotFoundError:  # not on this Python
            continue
        for requirement in requirements:
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in wanted | {""}):
                to_visit.append((normal(requirement.name), frozenset(requirement.extras)))
    return {distribution for distribution, _ in found}


def normal(name: str) -> str:
    """A distribution's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_extra_is_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    installs = tool("installs")
    assert installs.MODULES.keys() == project["optional-dependencies"].keys() - installs.NOT_FOR_USERS
    assert [str(entry) for entry in installs.installations(["3.11", "3.12"])][:3] == [
        "tailrace on Python 3.11",
        "tailrace on Python 3.12",
        "tailrace[java] on Python 3.11",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("extra", ["", *tool("installs").MODULES])
def test_what_an_extra_is_for_imports_nothing_that_it_does_not_bring(extra: str) -> None:
    """In this environment, which has everything: what the extra does not bring counts as missing."""
    brought = installed("tailrace", frozenset({extra}))
    missing = {
        module
        for module, distributions in packages_distributions().items()
        if brought.isdisjoint(map(normal, distributions))
    }
    modules = tool("installs").MODULES[extra] if extra else tool("installs").AGENT
    program = _WITHOUT.format(missing=missing, modules=", ".join(modules))
    outcome = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_every_extra_installs_alone_and_starts(tmp_path: Path) -> None:
    source = tmp_path / "source"
    subprocess.run(["git", "clone", "-q", ROOT, source], check=True)
    build = [sys.executable, "-m", "build", "-q", "--outdir", str(tmp_path / "dist"), str(source)]
    subprocess.run(build, check=True, env={"TAILRACE_COMPILE": "0", "PATH": "/usr/bin:/bin"})
    [wheel] = (tmp_path / "dist").glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    outcome = subprocess.run(
        [sys.executable, "tools/installs.py", str(wheel)], cwd=ROOT, capture_output=True, text=True
    )
    assert outcome.returncode == 0, outcome.stdout
