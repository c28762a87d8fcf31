"""The compiled build: mypyc makes the hot path's modules native, as one group, wherever a C compiler can be used.

Everything else about the distribution is in pyproject.toml. `tools/compilation.py` decides whether to compile.
The SHA-256 of every compiled source is compiled in (`tailrace_schemas._compiled_sources`), so that
`tailrace_common.build` can tell when a source was edited afterwards.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools"))
from compilation import FALLBACK, Compilation, compiler_problem, requested  # noqa: E402 - it is beside this file

SOURCE_ROOTS = ("schemas", "common", "connector", "spark")
# Never an __init__.py: a package that is a compiled module loses the path its other modules are found by.
HOT_PATH = (
    "schemas/tailrace_schemas/table.py",
    "schemas/tailrace_schemas/change.py",
    "schemas/tailrace_schemas/clustering.py",
    "schemas/tailrace_schemas/position.py",
    "schemas/tailrace_schemas/digest.py",
    "schemas/tailrace_schemas/tokens.py",
    "schemas/tailrace_schemas/cql/*.py",
    "schemas/tailrace_schemas/avro/change_plan.py",
    "schemas/tailrace_schemas/avro/convert.py",
    "schemas/tailrace_schemas/avro/decode.py",
    "schemas/tailrace_schemas/avro/encode.py",
    "schemas/tailrace_schemas/avro/values.py",
    "schemas/tailrace_schemas/transcode/*.py",
    "connector/tailrace/commitlog/*.py",
    "connector/tailrace/changes/*.py",
    "connector/tailrace/history/decode.py",
    "connector/tailrace/publish/record.py",
    "connector/tailrace/publish/routing.py",
    "spark/tailrace_spark/batch/delivered.py",
    "spark/tailrace_spark/batch/row_image.py",
    "spark/tailrace_spark/rowstate/*.py",
    "spark/tailrace_spark/sinks/changelog/json_plan.py",
    "spark/tailrace_spark/merge/batch_changes.py",
    "spark/tailrace_spark/merge/erasure.py",
    "spark/tailrace_spark/merge/row.py",
    "spark/tailrace_spark/merge/partition.py",
    "spark/tailrace_spark/merge/stored_row.py",
    "spark/tailrace_spark/snapshot/page.py",
    "spark/tailrace_spark/sinks/arrow/change_columns.py",
    "spark/tailrace_spark/sinks/calendar.py",
    "spark/tailrace_spark/sinks/kafka/avro_splice.py",
    "spark/tailrace_spark/sinks/kafka/debezium.py",
    "spark/tailrace_spark/sinks/lake/fast_rows.py",
    "spark/tailrace_spark/sinks/opensearch/bulk.py",
    "spark/tailrace_spark/sinks/opensearch/documents.py",
    "spark/tailrace_spark/sinks/opensearch/state.py",
    "spark/tailrace_spark/sinks/sql/row_builder.py",
    "spark/tailrace_spark/sinks/state_store/binary_rows.py",
)
RECORD = ROOT / "schemas/tailrace_schemas/_compiled_sources.py"
BUILDS = {"bdist_wheel", "editable_wheel", "build_ext", "build"}


def hot_modules() -> list[Path]:
    """The sources to compile, in a fixed order."""
    found = (path for pattern in HOT_PATH for path in sorted(ROOT.glob(pattern)))
    return [path for path in found if path.name != "__init__.py"]


def module_name(path: Path) -> str:
    """`schemas/tailrace_schemas/cql/types.py` is tailrace_schemas.cql.types."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts[1:])


def write_record(modules: list[Path]) -> None:
    """Write the module that says which sources were compiled."""
    lines = [f'    "{module_name(path)}": "{hashlib.sha256(path.read_bytes()).hexdigest()}",' for path in modules]
    head = '"""Written by setup.py: the sources that were compiled."""\n\nfrom typing import Final\n\n'
    RECORD.write_text(f"{head}SOURCES: Final[dict[str, str]] = {{\n" + "\n".join(lines) + "\n}\n", encoding="utf-8")


def wish() -> Compilation:
    """What this build is to do about compiled code."""
    return requested(os.environ, editable="editable_wheel" in sys.argv)


def fall_back(reason: str) -> None:
    """Say that pure Python is installed, and remove the record of compiled sources."""
    RECORD.unlink(missing_ok=True)
    sys.stderr.write(FALLBACK.format(reason=reason) + "\n")


class AllOrNothing(build_ext):
    """Builds every extension, or none: a module without the group's library cannot be imported."""

    def run(self) -> None:
        """Build. Where compiled code is not required, a failure leaves a pure build."""
        try:
            super().run()
        except (BaseError, CCompilerError, OSError) as error:
            if wish() is Compilation.REQUIRED:
                raise
            for output in (*self.get_outputs(), Path(self.build_lib, RECORD.relative_to(ROOT / "schemas"))):
                Path(output).unlink(missing_ok=True)
            self.extensions.clear()
            fall_back(f"the C compiler failed, see its messages above ({type(error).__name__})")


def compiled_modules() -> list[Any]:
    """The extensions to build: none for a pure build, and none where setuptools only asks for metadata.

    Ends the build with mypyc's messages where compiled code is required and mypyc refuses.
    """
    if not BUILDS & set(sys.argv[1:]):
        return []
    RECORD.unlink(missing_ok=True)
    if wish() is Compilation.OFF:
        return []
    if wish() is Compilation.WHERE_POSSIBLE and (problem := compiler_problem()) is not None:
        fall_back(problem)
        return []
    try:
        return _extensions()
    except (ImportError, SystemExit) as error:  # mypyc exits where it finds an error
        if wish() is Compilation.REQUIRED:
            raise
        fall_back(f"mypyc failed ({error})")
        return []


def _extensions() -> list[Any]:
    from mypyc.build import mypycify

    modules = hot_modules()
    write_record(modules)
    paths = [str(path.relative_to(ROOT)) for path in (*modules, RECORD)]
    level = os.environ.get("MYPYC_OPT_LEVEL", "3")  # the name that mypyc's own command knows
    extensions: list[Any] = mypycify(["--config-file=tools/mypyc.toml", *paths], group_name="tailrace", opt_level=level)
    for extension in extensions:
        # Nobody replaces a function of ours at loading: so the compiler may inline them. clang does so anyway.
        extension.extra_compile_args = [*extension.extra_compile_args, "-fno-semantic-interposition"]
    return extensions


if __name__ == "__main__":
    setup(ext_modules=compiled_modules(), cmdclass={"build_ext": AllOrNothing})
