"""How plain our words are: names that say nothing, and long sentences in what people read, as shares per package.

A ratchet: pyproject.toml has the words and the longest sentence, `tools/words_limits.toml` the limits in per cent.
`make check` fails where a share is above its limit. `--list PATH...` shows the places, `--write` lowers the limits.
It fails too where a package that implements rules of others has too few comments for them: pyproject.toml says which.
"""

from __future__ import annotations

import argparse
import ast
import math
import re
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
LIMITS: Final = Path(__file__).with_name("words_limits.toml")
_HEAD: Final = (
    "# Shares in per cent that tools/words.py allows; they only ever go down (`python tools/words.py --write`).\n"
)
_LOG_METHODS: Final = frozenset({"debug", "info", "warning", "error", "exception", "critical"})
_READ_BY_PEOPLE: Final = frozenset({"help", "description"})
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_END: Final = re.compile(r"[.!?](?=\s|$)|\n\s*\n")
_WORD: Final = re.compile(r"\S*\w\S*")
_PLACEHOLDER: Final = "X"


@dataclass(frozen=True, slots=True)
class Finding:
    """A local name, or a sentence with its number of words."""

    line: int
    text: str
    words: int = 1


@dataclass(frozen=True, slots=True)
class Share:
    """How many of all are bad."""

    bad: int
    all: int

    @property
    def percent(self) -> float:
        """The share, with two decimals."""
        return round(100 * self.bad / self.all, 2) if self.all else 0.0


def local_names(tree: ast.AST) -> Iterator[Finding]:
    """Each name that a function binds, once for each function: by assignment, for, with, walrus or comprehension."""
    for scope in ast.walk(tree):
        if isinstance(scope, _SCOPES):
            bound: dict[str, int] = {}
            for node in _inside(scope):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    bound.setdefault(node.id, node.lineno)
            for name, line in bound.items():
                yield Finding(line, name)


def parameters(tree: ast.AST) -> Iterator[Finding]:
    """Each parameter of each function and lambda."""
    for scope in ast.walk(tree):
        if isinstance(scope, _SCOPES):
            arguments = scope.args
            rest = [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
            for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *rest):
                yield Finding(argument.lineno, argument.arg)


def _inside(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, without those of the functions in it."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, (*_SCOPES, ast.ClassDef)):
            yield child
            yield from _inside(child)


def sentences(tree: ast.AST) -> Iterator[Finding]:
    """The sentences of docstrings, log messages, errors and help."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if (docstring := ast.get_docstring(node)) is not None:
                yield from _split(docstring, getattr(node, "lineno", 1))
        elif isinstance(node, ast.Call):
            for text in _texts(node):
                yield from _split(text, node.lineno)


def _texts(call: ast.Call) -> Iterator[str]:
    called = call.func
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    is_log = name in _LOG_METHODS and isinstance(called, ast.Attribute) and "log" in ast.unparse(called.value).lower()
    if call.args and (is_log or name == "say" or name.endswith("Error")) and (text := _text(call.args[0])):
        yield text
    for keyword in call.keywords:
        if keyword.arg in _READ_BY_PEOPLE and (text := _text(keyword.value)):
            yield text


def _text(node: ast.expr) -> str:
    """The text of a literal, each value in it as one word; empty for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or _PLACEHOLDER for part in node.values)
    return ""


def _split(text: str, line: int) -> Iterator[Finding]:
    for sentence in _END.split(text):
        words = _WORD.findall(sentence)
        if words:
            yield Finding(line, " ".join(words), len(words))


def is_empty_name(finding: Finding, empty: Collection[str]) -> bool:
    """Whether it is one of the words that say nothing."""
    return finding.text.strip("_") in empty


def shares(
    files: Mapping[Path, ast.AST], empty: Collection[str], longest: int, conventional: Collection[str] = ()
) -> dict[str, Share]:
    """The shares of some files. `conventional` names say enough where they are parameters."""
    names = [finding for tree in files.values() for finding in local_names(tree)]
    arguments = [finding for tree in files.values() for finding in parameters(tree)]
    empty_parameters = set(empty).difference(conventional)
    spoken = [finding for tree in files.values() for finding in sentences(tree)]
    return {
        "empty_names": Share(sum(is_empty_name(name, empty) for name in names), len(names)),
        "empty_parameters": Share(sum(is_empty_name(name, empty_parameters) for name in arguments), len(arguments)),
        "long_sentences": Share(sum(sentence.words > longest for sentence in spoken), len(spoken)),
    }


def comments(sources: Collection[str]) -> Share:
    """Lines that are comments, of all lines. Those for tools (`noqa`, `type:`) follow code, and so do not count."""
    lines = [line.strip() for source in sources for line in source.splitlines()]
    return Share(sum(line.startswith("#") for line in lines), len(lines))


def _sparse(wanted: Mapping[str, float]) -> Iterator[str]:
    """A line for each directory that has fewer comments in a hundred lines than it should."""
    for directory, percent in wanted.items():
        share = comments([path.read_text("utf-8") for path in (ROOT / directory).rglob("*.py")])
        if round(share.percent, 1) < percent:
            yield (
                f"{directory}: {share.percent} comments in 100 lines ({share.bad} of {share.all}); at least {percent}. "
                "Say beside the code why it does so, and whose rule it is"
            )


def parsed(directory: Path) -> dict[Path, ast.AST]:
    """The modules below a directory, or the one module."""
    paths = sorted(directory.rglob("*.py")) if directory.is_dir() else [directory]
    return {path: ast.parse(path.read_text("utf-8")) for path in paths}


def package(name: str) -> Path:
    """Where a package of ours is: each is in a directory of the project's root."""
    (path,) = [path.parent for path in ROOT.glob(f"*/{name}/__init__.py")]
    return path


def _listed(paths: Collection[Path], empty: Collection[str], longest: int, conventional: Collection[str]) -> None:
    for directory in paths:
        for path, tree in parsed(directory).items():
            named = [finding for finding in local_names(tree) if is_empty_name(finding, empty)]
            named += [name for name in parameters(tree) if is_empty_name(name, set(empty).difference(conventional))]
            spoken = (finding for finding in sentences(tree) if finding.words > longest)
            for finding in sorted((*named, *spoken), key=lambda finding: finding.line):
                words = f"{finding.words} words: " if finding.words > 1 else "name "
                print(f"{path}:{finding.line}: {words}{finding.text}")


def _written(limits: Mapping[str, Mapping[str, float]]) -> None:
    tables = (
        "".join([f"\n[{name}]\n", *(f"{kind} = {limit:.1f}\n" for kind, limit in kinds.items())])
        for name, kinds in limits.items()
    )
    LIMITS.write_text(_HEAD + "".join(tables), "utf-8")


def main() -> int:
    """The exit code: 1 where a share is above its limit, or comments are too few."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--list", nargs="+", type=Path, metavar="PATH")
    arguments.add_argument("--write", action="store_true")
    chosen = arguments.parse_args()
    options = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["words"]
    empty, longest = frozenset(options["empty-names"]), int(options["longest-sentence"])
    conventional = frozenset(options["conventional-parameters"])
    if chosen.list:
        _listed(chosen.list, empty, longest, conventional)
        return 0
    failed, lowered = False, dict[str, dict[str, float]]()
    for name, limits in tomllib.loads(LIMITS.read_text("utf-8")).items():
        lowered[name] = {}
        for kind, share in shares(parsed(package(name)), empty, longest, conventional).items():
            present = math.ceil(10 * share.percent) / 10
            lowered[name][kind] = min(present, limits[kind])
            if share.percent > limits[kind]:
                failed = True
                print(
                    f"{name}: {kind.replace('_', ' ')} grew to {share.percent} % ({share.bad} of {share.all}); the "
                    f"limit is {limits[kind]} %. `python tools/words.py --list FILE` shows those of a file",
                    file=sys.stderr,
                )
    for words in _sparse(options["comments"]):
        failed = True
        print(words, file=sys.stderr)
    if chosen.write:
        _written(lowered)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
