"""Which code runs, pure or compiled, and whether the compiled code is that of the sources beside it."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import logging
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

from tailrace_schemas.errors import TailraceError

# Written and compiled by setup.py together with the modules that it lists: {module: SHA-256 of its source, in hex}.
RECORD: Final = "tailrace_schemas._compiled_sources"
PURE_FACTOR: Final = 18
"""How many times the CPU of compiled code pure Python takes to decode: docs/performance.md, measured."""
PURE_ADVICE: Final = (
    f"decoding is about {PURE_FACTOR} times slower than compiled code. Install a compiled wheel, or a C compiler and "
    "Python's headers (on Debian: gcc, libc6-dev, python3-dev) and then tailrace again"
)
"""What pure Python costs, and what to do about it."""


class StaleBuildError(TailraceError):
    """Compiled code and the source beside it differ: the edited source would not be what runs."""


def version() -> str:
    """The distribution's version."""
    return metadata.version("tailrace")


def compiled_sources() -> Mapping[str, str]:
    """Module name -> SHA-256 of the source that it was compiled from; empty when pure code is active."""
    if importlib.util.find_spec(RECORD) is None:
        return {}
    record = importlib.import_module(RECORD)
    if str(record.__file__).endswith(".py"):  # left over by a build whose compiled files are gone
        return {}
    sources: Mapping[str, str] = record.SOURCES
    return sources


def stale_modules(sources: Mapping[str, str]) -> Iterator[str]:
    """The modules whose source exists and is not the one that was compiled."""
    for name, digest in sources.items():
        source = _source_of(name)
        if source.exists() and hashlib.sha256(source.read_bytes()).hexdigest() != digest:
            yield name


def require_fresh() -> None:
    """Raise StaleBuildError when a source was edited after it was compiled. Every program calls this at its start."""
    stale = sorted(stale_modules(compiled_sources()))
    if stale:
        raise StaleBuildError(
            f"the compiled code is not that of the sources: {', '.join(stale)}; "
            "run `make compiled` to compile them, or `make clean` to run them as they are"
        )


def describe(sources: Mapping[str, str] | None = None) -> str:
    """Version and active code in one line, for `--version` and the log; `sources` are `compiled_sources`."""
    sources = compiled_sources() if sources is None else sources
    stale = len(list(stale_modules(sources)))
    code = f"compiled: {len(sources)} modules" if sources else "pure Python"
    return f"tailrace {version()} ({code}{f', {stale} of them not of the sources beside them' if stale else ''})"


def describe_for_people() -> str:
    """What `--version` prints: `describe`, and on pure Python a second line with its cost and what to do."""
    sources = compiled_sources()
    return describe(sources) if sources else f"{describe(sources)}\nPure Python: {PURE_ADVICE}."


def log_build(log: logging.Logger, sources: Mapping[str, str] | None = None) -> None:
    """Log at a program's start which code runs. Pure Python is a warning, with what to do about it."""
    sources = compiled_sources() if sources is None else sources
    if sources:
        log.info("%s", describe(sources))
    else:
        log.warning("%s: %s", describe(sources), PURE_ADVICE)


def _source_of(name: str) -> Path:
    package = importlib.import_module(name.partition(".")[0])
    return Path(next(iter(package.__path__))).joinpath(*name.split(".")[1:]).with_suffix(".py")
