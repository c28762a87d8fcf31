"""Which files of tests the compiled code can change: those that reach a compiled module, or a direct importer of one.

`make unit-compiled` collects these alone. Elsewhere both runs of the unit tests would execute the same Python code.
"""

from __future__ import annotations

import ast
import heapq
import importlib.util
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
BORDER: Final = 2
"""Steps of importing from a test to a compiled module: the test's own, and that of the module which calls it."""
JUDGES: Final = frozenset({"tailrace_common.build"})
"""Modules about compiled code: their tests count as if these were compiled."""


def files_of_tests() -> frozenset[Path]:
    """The files of tests within `BORDER` of a compiled module. Helpers of tests and `__init__` modules are no step."""
    setup = _setup()
    compiled = {setup.module_name(path) for path in setup.hot_modules()} | JUDGES
    modules = dict(_modules(setup.SOURCE_ROOTS))
    importers = _importers(modules)
    steps = dict.fromkeys(compiled & modules.keys(), 0)
    queue = [(0, name) for name in steps]
    while queue:
        count, name = heapq.heappop(queue)
        for importer in importers[name] if count == steps[name] else ():
            further = count + (not _is_passage(importer, modules[importer]))
            if further < steps.get(importer, BORDER + 1):
                steps[importer] = further
                heapq.heappush(queue, (further, importer))
    return frozenset(modules[name] for name in steps if _is_test(modules[name]))


def _setup() -> ModuleType:
    """setup.py as a module: it has the list of what is compiled."""
    spec = importlib.util.spec_from_file_location("tailrace_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _modules(roots: Iterable[str]) -> Iterable[tuple[str, Path]]:
    """Every module of the product and of the tests: name, file."""
    for base, folder in [*((ROOT / root, ROOT / root) for root in roots), (ROOT, ROOT / "tests")]:
        for path in folder.rglob("*.py"):
            yield ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__"), path


def _importers(modules: Mapping[str, Path]) -> Mapping[str, set[str]]:
    """For each module those that import it, wherever in their text: in functions and for types too."""
    importers = defaultdict(set)
    for name, path in modules.items():
        for node in ast.walk(ast.parse(path.read_bytes())):
            for imported in _imported(node):
                importers[imported if imported in modules else imported.rpartition(".")[0]].add(name)
    return importers


def _imported(node: ast.AST) -> Iterable[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module is not None:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_passage(name: str, path: Path) -> bool:
    return path.name == "__init__.py" or (name.startswith("tests.") and not _is_test(path))


def _is_test(path: Path) -> bool:
    return path.name.startswith("test_") and path.is_relative_to(ROOT / "tests")
