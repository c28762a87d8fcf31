"""Compiled code and its sources: the same bytes in, the same bytes or the same error out, of every entry point.

Where the tests run on compiled code they run on it alone; this holds it to the sources. `TAILRACE_TEST_PROPERTIES=long`
takes ten times as many inputs, from another seed each time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from random import SystemRandom
from typing import Final

import pytest

import tailrace_schemas
from tailrace_common.build import compiled_sources
from tests.differential.reached import ROOT, functions, setup_module
from tests.properties import LONG

SEED: Final = SystemRandom().randrange(10**6) if LONG else 1
SHOWN: Final = 10
NEVER_RETURN: Final = {
    "tailrace.publish.routing.Destinations.*": "a protocol",
    "tailrace.publish.routing.SchemaStore.*": "a protocol",
    "tailrace_spark.merge.partition.RowRenderer.*": "a protocol",
    "tailrace.commitlog.mutation.MutationVisitor.update": "of a base that is never used itself",
    "tailrace_schemas.avro.values.ValueReader.read": "of a base that is never used itself",
    "tailrace_schemas.cql.coding.Codec.??code": "of a base that is never used itself",
    "tailrace_schemas.cql.order.Comparable.form": "of a base that is never used itself",
    "tailrace_schemas.transcode.values.ValueWriter.write": "of a base that is never used itself",
    "tailrace_schemas.avro.values.NoReader.read": "it raises always",
    "tailrace.commitlog.descriptor._refuse_version": "it raises always",
    "tailrace_spark.sinks.lake.fast_rows.VisibleRowColumns._put_cells": "test_fast_rows.py has them",
}
"""Functions of compiled modules from which no result comes here, and why."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600 if LONG else 1200),
    pytest.mark.skipif(not compiled_sources(), reason="no compiled code is here to be held to the sources"),
]


def started(code: str, paths: list[Path], folder: Path) -> subprocess.Popen[bytes]:
    """One side at work. Sets have one order in both."""
    path = os.pathsep.join(map(str, [*paths, ROOT]))
    command = [sys.executable, "-m", "tests.differential.outcomes", code, str(SEED), str(folder)]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}, cwd=ROOT)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What both sides wrote."""
    folder = tmp_path_factory.mktemp("outcomes")
    setup = setup_module()
    compiled = {setup.module_name(path): sha256(path.read_bytes()).hexdigest() for path in setup.hot_modules()}
    assert compiled == compiled_sources(), "compile again: what is compiled is not what stands in the sources"
    sources = [ROOT / root for root in setup.SOURCE_ROOTS]
    sides = [
        started("pure", sources, folder),
        started("compiled", [Path(tailrace_schemas.__file__).parents[1]], folder),
    ]
    assert [side.wait() for side in sides] == [0, 0]
    return folder


def cases(file: Path) -> Iterator[tuple[str, str]]:
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            name, text = json.loads(line)
            yield name, text


def test_compiled_code_does_what_its_sources_do(folder: Path) -> None:
    differences: list[str] = []
    pairs = zip_longest(cases(folder / "pure.jsonl"), cases(folder / "compiled.jsonl"), fillvalue=("none", ""))
    for number, ((name, text), (compiled_name, compiled_text)) in enumerate(pairs):
        assert name == compiled_name, f"case {number} is another one in compiled code: {compiled_name}, not {name}"
        if text != compiled_text:
            differences.append(f"{name}\n    sources:  {text}\n    compiled: {compiled_text}")
    shown = "\n".join(differences[:SHOWN])
    assert not differences, f"{len(differences)} cases differ (seed {SEED}), the first:\n{shown}"


def test_every_compiled_function_is_reached(folder: Path) -> None:
    names = set(functions())
    reached = set(json.loads((folder / "reached.json").read_text(encoding="utf-8")))
    left_out = {name for name in names for pattern in NEVER_RETURN if fnmatchcase(name, pattern)}
    assert names - reached == left_out, "give cases that reach these functions, or say why none does"
