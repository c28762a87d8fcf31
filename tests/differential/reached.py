"""Which functions of the modules that setup.py compiles return something: their sources are marked when imported.

A tracer would tell the same, and take longer than everything that it is told about.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
_MARKS: Final = "__reached__"
_RESULT: Final = "result_to_return__"


def setup_module() -> ModuleType:
    """setup.py, which lists what is compiled."""
    spec = spec_from_file_location("tailrace_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Marking(ast.NodeTransformer):
    """Has each function of a module note that it returns; `names` are "module.qualified name" of all."""

    def __init__(self, module: str) -> None:
        self.names: list[str] = []
        self._path = [module]
        self._numbers: list[int] = []

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self._path.append(node.name)
        self.generic_visit(node)
        self._path.pop()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._path.append(node.name)
        self._numbers.append(len(self.names))
        self.names.append(".".join(self._path))
        self.generic_visit(node)
        node.body.append(self._mark(node))
        self._path.pop()
        self._numbers.pop()
        return node

    def visit_Return(self, node: ast.Return) -> list[ast.stmt]:
        value = node.value or ast.Constant(None)
        keep = ast.Assign([ast.Name(_RESULT, ast.Store())], value)
        statements: list[ast.stmt] = [keep, self._mark(node), ast.Return(ast.Name(_RESULT, ast.Load()))]
        return [ast.fix_missing_locations(ast.copy_location(statement, node)) for statement in statements]

    def _mark(self, node: ast.stmt) -> ast.stmt:
        [mark] = ast.parse(f"{_MARKS}[{self._numbers[-1]}] = 1").body
        return ast.fix_missing_locations(ast.copy_location(mark, node))


def _marked(module: str, source: bytes) -> tuple[ast.AST, list[str]]:
    marking = _Marking(module)
    return marking.visit(ast.parse(source)), marking.names


class _Loader(SourceFileLoader):
    """Runs a marked module; nothing of it is kept as bytecode."""

    def __init__(self, name: str, path: str) -> None:
        super().__init__(name, path)
        self.marks = bytearray()
        self.names: list[str] = []

    def get_code(self, fullname: str) -> CodeType:
        tree, self.names = _marked(fullname, Path(self.path).read_bytes())
        self.marks.extend(bytes(len(self.names)))
        code: CodeType = compile(tree, self.path, "exec")  # type: ignore[call-overload]  # a module's tree stays one
        return code

    def exec_module(self, module: ModuleType) -> None:
        vars(module)[_MARKS] = self.marks
        super().exec_module(module)


class Reached(MetaPathFinder):
    """Marks the modules that are compiled as they are imported from their sources."""

    def __init__(self) -> None:
        setup = setup_module()
        self._sources = {setup.module_name(path): path for path in setup.hot_modules()}
        self._loaders: list[_Loader] = []
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        """For those alone."""
        if name not in self._sources:
            return None
        spec = PathFinder.find_spec(name, path, target)
        assert spec is not None
        assert spec.origin == str(self._sources[name]), f"{name} is not that of the sources: {spec.origin}"
        spec.loader = _Loader(name, spec.origin)
        self._loaders.append(spec.loader)
        return spec

    def names(self) -> set[str]:
        """The functions that have returned by now."""
        pairs = ((loader.names, loader.marks) for loader in self._loaders)
        return {name for names, marks in pairs for name, mark in zip(names, marks, strict=True) if mark}


def functions() -> Iterator[str]:
    """Every function of the compiled modules."""
    setup = setup_module()
    for path in setup.hot_modules():
        yield from _marked(setup.module_name(path), path.read_bytes())[1]
