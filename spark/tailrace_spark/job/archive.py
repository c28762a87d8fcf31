"""Our packages, and what they import, as one archive that Spark unpacks beside each executor (`spark.archives`).

Where the packages here are compiled, the archive's are too, and fit executors of the same Python and architecture.
"""

from __future__ import annotations

import importlib.util
import json
import pkgutil
import re
import subprocess
import sys
import tarfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, distribution, distributions, packages_distributions
from pathlib import Path, PurePosixPath
from typing import Final

from tailrace_schemas.errors import SettingsError
from tailrace_spark.sinks.registry import SINKS

_OURS: Final = ("tailrace_common", "tailrace_schemas", "tailrace_spark")
_ENTRIES: Final = (
    "tailrace_spark.snapshot.stream_rows",
    "tailrace_spark.source.changes",
    "tailrace_spark.tasks.partition_writer",
    "numpy",
    "pandas",
    "pyarrow",
)
# mypyc's library of all compiled modules, beside the packages: none of these can be imported without it.
_COMPILED_GROUP: Final = "tailrace__mypyc"
# Of our own distribution: its version, and the entry points by which sections of sinks are found.
_METADATA: Final = frozenset({"METADATA", "entry_points.txt"})
_SPARKS_OWN: Final = frozenset({"pyspark", "py4j", "setuptools"})
_LEFT_OUT: Final = frozenset({"__pycache__", "tests", "include"})
# An archive is made more often than it is sent far: level 6 takes three times the time for an eighth less bytes.
_COMPRESSION: Final = 1
# What has been loaded when everything that tasks of ours import is there.
_LIST: Final = (
    "import importlib, json, sys\n"
    "for name in sys.argv[1:]: importlib.import_module(name)\n"
    "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
)


@dataclass(frozen=True, slots=True)
class Contents:
    """Contents of an archive: distributions with their versions, number of files, and the archive's size in bytes."""

    distributions: tuple[str, ...]
    files: int
    size: int


def write_archive(file: Path, without: Collection[str] = (), sinks: Collection[str] = ()) -> Contents:
    """Write FILE, a .tar.gz: the three packages that executors use, and the distributions that these import.

    `sinks` are types of sinks, such as sql, whose packages are in it too.
    `without` are names of distributions that the executors' Python has already. Spark's own are never in it, nor are
    tests and C headers. Raises SettingsError for a name that would not be in it anyway, and for a sink whose packages
    are not installed. It does so for a file that cannot be made, too.
    """
    distributions = _distributions(frozenset(sinks))
    unknown = {_plain(name) for name in without} - distributions.keys()
    if unknown:
        raise SettingsError(
            f"--without {' '.join(sorted(unknown))}: the archive has only {', '.join(sorted(distributions))}"
        )
    chosen = {name: dist for name, dist in distributions.items() if name not in {_plain(name) for name in without}}
    files = 0
    try:
        with tarfile.open(file, "w:gz", compresslevel=_COMPRESSION) as archive:
            for path, inside in _files(chosen):
                archive.add(path, inside, recursive=False)
                files += 1
    except OSError as error:
        raise SettingsError(f"--archive {file}: {error.strerror}") from error
    names = tuple(sorted(f"{name} {dist.version}" for name, dist in chosen.items()))
    return Contents(names, files, file.stat().st_size)


@cache
def _distributions(sinks: frozenset[str]) -> dict[str, Distribution]:
    """The distributions that a process loads when it imports what tasks import; by plain names, without ours."""
    command = [sys.executable, "-c", _LIST, *_ENTRIES, *_modules_of(sinks)]
    loaded = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)  # noqa: S603 - ours
    owners = packages_distributions()
    names = {_plain(owner) for module in loaded for owner in owners.get(module, ())}
    return {name: distribution(name) for name in names - _SPARKS_OWN - {"tailrace"}}


def _modules_of(sinks: Collection[str]) -> list[str]:
    """What these types of sinks import when they are opened, and when they write."""
    modules: list[str] = []
    for kind in (SINKS[name] for name in sorted(sinks)):
        if missing := kind.missing():
            raise SettingsError(f"--archive: a {kind.name} sink needs {', '.join(missing)}: {kind.install}")
        package = kind.open.__module__.rpartition(".")[0]
        folder = str(_folder("tailrace_spark").joinpath(*package.split(".")[1:]))
        modules += [*kind.packages, *(driver for driver in kind.drivers if importlib.util.find_spec(driver))]
        modules += [f"{package}.{module.name}" for module in pkgutil.iter_modules([folder])]
    return modules


def _files(chosen: dict[str, Distribution]) -> Iterator[tuple[Path, str]]:
    """(file, its path in the archive)"""
    for package in _OURS:
        root = _folder(package)
        for path in sorted(root.rglob("*")):
            inside = PurePosixPath(package, path.relative_to(root).as_posix())
            if path.is_file() and _wanted(inside):
                yield path, str(inside)
    if (group := importlib.util.find_spec(_COMPILED_GROUP)) is not None and group.origin is not None:
        yield Path(group.origin), Path(group.origin).name
    # In a checkout there is a second distribution of our name, the egg-info of its build.
    for installed in distributions(name="tailrace"):
        for listed in installed.files or ():
            if listed.parent.suffix == ".dist-info" and listed.name in _METADATA:
                yield Path(str(installed.locate_file(listed))), listed.as_posix()
    for dist in chosen.values():
        for listed in sorted(dist.files or ()):
            inside = PurePosixPath(listed.as_posix())
            path = Path(str(dist.locate_file(listed)))
            if ".." not in inside.parts and _wanted(inside) and path.is_file():
                yield path, str(inside)


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise SettingsError(f"{package} is not installed beside this program")
    return Path(spec.origin).parent


def _wanted(inside: PurePosixPath) -> bool:
    return not _LEFT_OUT & set(inside.parts) and inside.suffix not in {".pyc", ".a"}


def _plain(name: str) -> str:
    """A distribution's name as PyPI compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()
