"""Files of a Delta table that no commit names yet: their rows, partitions and statistics."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailrace_spark.sinks.lake.parquet_files import ParquetFile, write_files
from tailrace_spark.sinks.lake.staging import local_files

SCHEMA: Final = pa.schema(
    [("n", pa.int64()), ("text", pa.string()), ("on", pa.date32()), ("when", pa.timestamp("us", "UTC")),
     ("bytes", pa.binary()), ("inner", pa.struct([("n", pa.int32())])), ("day", pa.date32())]
)  # fmt: skip


def row(n: int | None, text: str | None, day: date | None = date(2020, 1, 1)) -> dict[str, object]:
    moment = None if n is None else datetime(1 + n, 2, 3, 4, 5, 6, 7, UTC)
    return {
        "n": n,
        "text": text,
        "on": moment and moment.date(),
        "when": moment,
        "bytes": b"b",
        "inner": {"n": n},
        "day": day,
    }


def written(root: Path, *rows: dict[str, object], per_batch: int = 2, file_bytes: int = 1 << 30) -> list[ParquetFile]:
    root.mkdir()
    batches = [
        pa.RecordBatch.from_pylist(list(rows[begin : begin + per_batch]), schema=SCHEMA)
        for begin in range(0, len(rows), per_batch)
    ]
    return write_files(local_files(str(root)), batches, SCHEMA, "day", file_bytes)


def stats(file: ParquetFile) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.stats)
    return found


def test_each_value_of_the_partition_has_files_of_its_own(tmp_path: Path) -> None:
    days = [date(2020, 1, 1), None, date(1, 1, 1)]
    files = written(tmp_path / "t", *(row(n, "a", days[n % 3]) for n in range(6)))
    assert [file.partition for file in files] == [{"day": "2020-01-01"}, {"day": None}, {"day": "0001-01-01"}]
    assert [file.path.split("/")[0] for file in files] == [
        "day=2020-01-01", "day=__HIVE_DEFAULT_PARTITION__", "day=0001-01-01",
    ]  # fmt: skip
    for number, file in enumerate(files):
        path = tmp_path / "t" / file.path
        assert path.stat().st_size == file.size
        table = pq.ParquetFile(path).read()
        assert table["n"].to_pylist() == [number, number + 3]
        assert table.schema.names == [name for name in SCHEMA.names if name != "day"]


def test_statistics_are_of_columns_and_not_of_fields(tmp_path: Path) -> None:
    [file] = written(tmp_path / "t", row(998, "b"), row(5, "a"), row(None, None))
    assert stats(file) == {
        "numRecords": 3,
        "minValues": {"n": 5, "text": "a", "on": "0006-02-03", "when": "0006-02-03T04:05:06.000007Z"},
        "maxValues": {"n": 998, "text": "b", "on": "0999-02-03", "when": "0999-02-03T04:05:06.000007Z"},
        "nullCount": {"n": 1, "text": 1, "on": 1, "when": 1},
    }


def test_a_long_text_has_no_bounds_and_a_column_of_nulls_has_none(tmp_path: Path) -> None:
    [file] = written(tmp_path / "t", row(None, "x" * 65), row(None, "a"))
    assert stats(file) == {
        "numRecords": 2,
        "minValues": {},
        "maxValues": {},
        "nullCount": {"n": 2, "text": 0, "on": 2, "when": 2},
    }


@pytest.mark.slow
def test_a_file_ends_at_its_size_and_of_many_days_the_oldest_ends_first(tmp_path: Path) -> None:
    assert len(written(tmp_path / "small", *(row(n, "a") for n in range(8)), file_bytes=1)) == 4
    days = [row(n, "a", date(2020, 1, 1).replace(year=2000 + n % 70)) for n in range(140)]
    files = written(tmp_path / "days", *days, per_batch=1)
    assert sum(stats(file)["numRecords"] for file in files) == 140
    assert len({file.path for file in files}) == len(files) == 140  # each day is ended before it comes again


def test_nothing_makes_no_file(tmp_path: Path) -> None:
    assert written(tmp_path / "t") == []
