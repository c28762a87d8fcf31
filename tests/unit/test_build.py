"""The build: what is packaged, what is compiled, and that an edited source is never shadowed by compiled code."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import logging
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from setuptools import Distribution, Extension
from setuptools.errors import CCompilerError

from tailrace_common import build
from tests.tools import tool

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
    roots = ("schemas", "common", "connector", "spark")
    suffixes = {path.suffix for root in roots for path in (ROOT / root).rglob("*")}
    packaged = {Path(pattern).suffix for pattern in PYPROJECT["tool"]["setuptools"]["package-data"]["*"]}
    copied = (ROOT / "tools/compile.sh").read_text(encoding="utf-8")
    for suffix in suffixes - {".py", ".pyc", ".so", "", ".typed"}:
        assert suffix in packaged, "name it in tool.setuptools.package-data"
        assert f"'*{suffix}'" in copied, "let tools/compile.sh copy it"


@pytest.mark.slow
def test_the_files_of_the_page_are_in_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    distribution = Distribution()
    distribution.parse_config_files()
    command = distribution.get_command_obj("build_py")
    command.ensure_finalized()
    packaged = {ROOT / source / name for _, source, _, names in command.data_files for name in names}
    page = ROOT / "spark/tailrace_server/web"
    files = {file for folder in ("static", "templates") for file in (page / folder).iterdir()}
    assert len(files) > 8
    assert files <= packaged


@pytest.mark.parametrize(
    ("value", "editable", "wish"),
    [
        (None, False, "where possible"),
        (None, True, "off"),
        ("", False, "where possible"),
        ("0", False, "off"),
        ("1", False, "required"),
        ("1", True, "required"),
    ],
)
def test_what_is_compiled_by_default(value: str | None, editable: bool, wish: str) -> None:
    environ = {} if value is None else {"TAILRACE_COMPILE": value}
    assert tool("compilation").requested(environ, editable=editable).value == wish


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "compiler", "needs"),
    [("0", "cc", False), ("1", "cc", True), ("1", "/nonexistent", True), ("", "/nonexistent", False)],
)
def test_mypyc_is_required_only_to_compile(
    value: str, compiler: str, needs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_COMPILE", value)
    monkeypatch.setenv("CC", compiler)
    dev = PYPROJECT["project"]["optional-dependencies"]["dev"]
    requirement = [need for need in dev if need.startswith("mypy")]
    backend = tool("build_backend")
    assert [need for need in backend.get_requires_for_build_wheel() if "mypy" in need] == requirement * needs
    editable = requirement if value == "1" else []
    assert [need for need in backend.get_requires_for_build_editable() if "mypy" in need] == editable


def test_a_compiler_that_cannot_build_for_python_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/nonexistent/cc -O2")
    problem = tool("compilation").compiler_problem()
    assert problem == "no C compiler (/nonexistent/cc: No such file or directory)"
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'fatal error: Python.h: No such file' >&2\nexit 1\n", encoding="utf-8")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    assert "Python.h: No such file" in tool("compilation").compiler_problem()


@pytest.mark.parametrize(
    ("wheel", "environ", "words"),
    [
        ("tailrace-0.1.0-cp311-cp311-linux_x86_64.whl", {}, "has compiled code."),
        ("tailrace-0.1.0-py3-none-any.whl", {"TAILRACE_COMPILE": "0"}, "is pure Python, as TAILRACE_COMPILE=0 asks."),
        ("tailrace-0.1.0-py3-none-any.whl", {}, "NOT COMPILED, pure Python is installed: no C compiler (/nonexistent:"),
    ],
)
def test_a_build_ends_with_which_code_it_made(
    wheel: str, environ: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "/nonexistent")
    assert words in tool("compilation").closing_line(wheel, environ)


def test_the_cost_of_pure_python_is_the_measured_one() -> None:
    words = f"about {build.PURE_FACTOR} times"
    assert words in build.PURE_ADVICE
    compilation = tool("compilation")
    pure = "x-py3-none-any.whl"
    assert words in compilation.FALLBACK
    assert words in compilation.closing_line(pure, {"TAILRACE_COMPILE": "0"})
    measured = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
    assert f"about {build.PURE_FACTOR} times as much" in measured


FAILING: dict[str, str] = {"": "pure", "1": "error"}


@pytest.mark.slow
@pytest.mark.parametrize(("value", "outcome"), FAILING.items())
def test_a_compiler_that_fails_leaves_a_pure_build(
    value: str, outcome: str, setup_module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("TAILRACE_COMPILE", value)
    monkeypatch.chdir(tmp_path)
    for name, text in {"good": "int good;", "bad": "#error bad"}.items():
        (tmp_path / f"{name}.c").write_text(f"{text}\n", encoding="utf-8")
    record = tmp_path / "schemas/tailrace_schemas/_compiled_sources.py"
    built = tmp_path / "build/tailrace_schemas/_compiled_sources.py"
    for path in (record, built):
        path.parent.mkdir(parents=True)
        path.write_text("SOURCES = {}\n", encoding="utf-8")
    for name, value_ in {"ROOT": tmp_path, "RECORD": record}.items():
        monkeypatch.setattr(setup_module, name, value_)
    extensions = [Extension(name, [f"{name}.c"]) for name in ("good", "bad")]
    command = setup_module.AllOrNothing(Distribution({"ext_modules": extensions}))
    command.build_lib, command.build_temp = str(tmp_path / "build"), str(tmp_path / "temp")
    command.ensure_finalized()
    if outcome == "error":
        with pytest.raises(CCompilerError):
            command.run()
        return
    command.run()
    assert command.get_outputs() == []
    assert list(tmp_path.glob("build/**/*.so")) == []
    assert not record.exists()
    assert not built.exists()
    printed = capsys.readouterr().err.splitlines()
    assert [line for line in printed if "NOT COMPILED, pure Python is installed: the C compiler failed" in line]


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("environ", "code"), [({"MYPYC_OPT_LEVEL": "0"}, "compiled"), ({"CC": "/nonexistent"}, "pure Python")]
)
def test_an_installation_compiles_where_it_can(environ: dict[str, str], code: str, tmp_path: Path) -> None:
    """As a user installs it: an environment of its own, build isolation, the bare package without Spark's stubs.

    Not optimised: beside other work that took longer than 20 minutes.
    """
    python = tmp_path / "venv/bin/python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    source = tmp_path / "source"
    subprocess.run(["git", "clone", "-q", ROOT, source], check=True)
    variables = {name: value for name, value in os.environ.items() if name not in ("TAILRACE_COMPILE", "PYTHONPATH")}
    subprocess.run([python, "-m", "pip", "install", "-q", source], env={**variables, **environ}, check=True)
    command: list[str | Path] = [tmp_path / "venv/bin/tailrace", "--version"]
    shown = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    assert f"({code}" in shown.stdout
    assert (build.PURE_ADVICE in shown.stdout) == (code == "pure Python")


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


def test_a_start_logs_which_code_runs(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("tailrace.agent")
    for sources, level, words in (
        ({}, "WARNING", "(pure Python): decoding is about"),
        ({"tailrace_schemas.none": ""}, "INFO", "(compiled: 1"),
    ):
        caplog.clear()
        with caplog.at_level(logging.INFO, log.name):
            build.log_build(log, sources)
        assert [(record.levelname, words in record.message) for record in caplog.records] == [(level, True)]


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
        return subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=600)

    assert start().returncode == 0
    with (copy / "tailrace/commitlog/frames.py").open("a", encoding="utf-8") as source:
        source.write("# edited\n")
    edited = start()
    assert edited.returncode == 1
    assert "not that of the sources: tailrace.commitlog.frames; run `make compiled`" in edited.stderr
