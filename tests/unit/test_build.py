"""The build: what is packaged, what is compiled, and that an edited source is never shadowed by compiled code."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tailrace_common import build

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture
def setup_module() -> ModuleType:
    """setup.py as a module, without building anything."""
    spec = importlib.util.spec_from_file_location("tailrace_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_module_is_in_a_package() -> None:
    for root in PYPROJECT["tool"]["setuptools"]["packages"]["find"]["where"]:
        for module in (ROOT / root).rglob("*.py"):
            assert (module.parent / "__init__.py").exists(), module


def test_every_data_file_is_packaged() -> None:
    suffixes = {path.suffix for root in ("schemas", "connector", "spark") for path in (ROOT / root).rglob("*")}
    assert suffixes - {".py", ".pyc", ".so", "", ".typed"} <= {".json"}, "name it in tool.setuptools.package-data"


def test_only_setuptools_is_needed_to_build_pure() -> None:
    assert [need.partition(">")[0] for need in PYPROJECT["build-system"]["requires"]] == ["setuptools"]


@pytest.mark.parametrize(("compile_", "needs"), [("", False), ("1", True)])
def test_mypyc_is_asked_for_only_to_compile(compile_: str, needs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_COMPILE", compile_)
    spec = importlib.util.spec_from_file_location("tailrace_build_backend", ROOT / "tools/build_backend.py")
    assert spec is not None
    assert spec.loader is not None
    backend: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(backend)
    dev = PYPROJECT["project"]["optional-dependencies"]["dev"]
    compiler = [need for need in dev if need.startswith("mypy")]
    assert (compiler == backend._COMPILER) is needs


def test_the_hot_path_has_modules_and_no_package(setup_module: ModuleType) -> None:
    modules = setup_module.hot_modules()
    names = {setup_module.module_name(path) for path in modules}
    assert {"tailrace_schemas.cql.types", "tailrace.commitlog.frames", "tailrace_spark.rowstate.row"} <= names
    assert not any(path.name == "__init__.py" for path in modules)


def test_metadata_compiles_nothing(setup_module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_COMPILE", "1")
    monkeypatch.setattr(sys, "argv", ["setup.py", "egg_info"])
    assert setup_module.compiled_modules() == []


def test_a_source_that_changed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "tailrace_fresh_and_stale"
    package.mkdir()
    for name in ("__init__", "fresh", "stale"):
        (package / f"{name}.py").write_text(f'"""{name}"""\n', encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    digest = hashlib.sha256((package / "fresh.py").read_bytes()).hexdigest()
    sources = {f"{package.name}.{name}": digest for name in ("fresh", "stale", "without_source")}
    assert list(build.stale_modules(sources)) == [f"{package.name}.stale"]


def test_what_runs_here_is_fresh() -> None:
    build.require_fresh()
    sources = build.compiled_sources()
    assert build.describe().endswith(f"(compiled: {len(sources)} modules)" if sources else "(pure Python)")


COMPILED = bool(build.compiled_sources())


@pytest.mark.skipif(not COMPILED, reason="pure code runs here; make test runs this on compiled code too")
def test_every_module_of_the_record_is_compiled() -> None:
    for name in build.compiled_sources():
        assert str(importlib.import_module(name).__file__).endswith(".so"), name


@pytest.mark.skipif(not COMPILED, reason="pure code runs here; make test runs this on compiled code too")
def test_compiled_code_with_an_edited_source_refuses_to_start(tmp_path: Path) -> None:
    site = Path(build.__file__).parents[1]
    copy = tmp_path / "site"
    subprocess.run(["cp", "-r", site, copy], check=True)
    command = [sys.executable, "-c", "from tailrace.cli.main import run; run()", "check", "--only", "stream"]

    def start() -> subprocess.CompletedProcess[str]:
        environ = {"PYTHONPATH": str(copy), "PATH": "/usr/bin:/bin"}
        return subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=60)

    assert start().returncode == 0
    with (copy / "tailrace/commitlog/frames.py").open("a", encoding="utf-8") as source:
        source.write("# edited\n")
    edited = start()
    assert edited.returncode == 1
    assert "not that of the sources: tailrace.commitlog.frames; run `make compiled`" in edited.stderr
