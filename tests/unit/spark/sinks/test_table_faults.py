"""Whose fault an exception is: one table's, or the store's."""

from __future__ import annotations

from collections.abc import Callable
from errno import ENAMETOOLONG
from pathlib import Path

import pyarrow as pa
import pytest

from tailrace_schemas.errors import (
    CorruptError,
    DecodeError,
    FencedError,
    SchemaRefusedError,
    ServiceError,
    SettingsError,
)
from tailrace_spark.sinks.delta.settings import DeltaSinkSettings
from tailrace_spark.sinks.delta.store import DeltaStore
from tailrace_spark.sinks.files.settings import FilesSinkSettings
from tailrace_spark.sinks.files.store import FileStore
from tailrace_spark.sinks.table_faults import (
    REMEMBERED_SECONDS,
    Refusals,
    TableRefusedError,
    is_of_table,
    reason_of,
)


class PanicException(BaseException):
    """What such a library raises where it panics."""


@pytest.mark.promise("sinks.one-table-alone")
@pytest.mark.parametrize(
    "error",
    [
        KeyError("x"), TypeError("x"), ValueError("x"), OverflowError("x"), RecursionError("x"), Exception("x"),
        RuntimeError("x"), UnicodeDecodeError("utf-8", b"", 0, 1, "x"), DecodeError("x"), CorruptError("x"),
        TableRefusedError("x"), SchemaRefusedError("x"), PanicException("x"), OSError(ENAMETOOLONG, "x"),
        OSError("Error: Os { code: 36, kind: InvalidFilename, message: \"File name too long\" }"),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_an_exception_of_any_type_is_its_table_s(error: BaseException) -> None:
    assert is_of_table(error)


@pytest.mark.parametrize(
    "error",
    [
        ServiceError("x"), SettingsError("x"), FencedError("x"), OSError("x"), ConnectionError("x"), TimeoutError("x"),
        MemoryError("x"), KeyboardInterrupt(), SystemExit(), GeneratorExit(),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_what_says_that_the_store_does_not_answer_is_not(error: BaseException) -> None:
    assert not is_of_table(error)


def test_a_name_that_a_directory_cannot_have_is_its_table_s(tmp_path: Path) -> None:
    """Whatever each library says of it; none of them may hold the others up for ever."""
    name, lake = "n" * 256, DeltaStore(DeltaSinkSettings(path=str(tmp_path / "delta")))
    files = FileStore.of(FilesSinkSettings(path=str(tmp_path / "files")))
    rows = pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int32())]), [])
    uses: list[Callable[[], object]] = [
        lambda: lake.make(name, rows, {}, partitioned_by="id", says=""),
        lambda: files.make(name),
    ]
    for use in uses:
        with pytest.raises(TableRefusedError, match="File name too long"):
            use()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KeyError("v"), "KeyError: 'v'"),
        (ValueError("a\0b\n c"), "a\ufffdb c"),
        (Exception("Schema error: v\n   0: <unknown>\n   1: <unknown>"), "Exception: Schema error: v"),
        (TypeError(), "TypeError"),
        (ServiceError("no: postgresql://me:secret@db/x"), "no: postgresql://me:**********@db/x"),
    ],
)
def test_its_reason_is_one_line_that_every_store_takes(error: Exception, words: str) -> None:
    assert reason_of(error) == words


def test_a_refusal_is_remembered_for_a_minute() -> None:
    now = [100.0]
    refusals = Refusals(lambda: now[0])
    refusals.check("t")
    refusals.note("t", KeyError("v"))
    refusals.check("u")
    now[0] += REMEMBERED_SECONDS - 1
    with pytest.raises(TableRefusedError, match="KeyError: 'v'"):
        refusals.check("t")
    now[0] += 1
    refusals.check("t")
