"""The archive for executors: ours, and what it imports, but for what is left out."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tailrace_common.build import compiled_sources, version
from tailrace_schemas.errors import SettingsError
from tailrace_spark.job.archive import write_archive


@pytest.mark.long
def test_it_has_what_tasks_import(tmp_path: Path) -> None:
    file = tmp_path / "executors.tar.gz"
    made = write_archive(file, ["Pandas", "pyarrow"])  # numpy stays: it has tests and C headers in it
    with tarfile.open(file) as archive:
        names = archive.getnames()
    assert (made.files, made.size) == (len(names), file.stat().st_size)
    metadata = f"tailrace-{version()}.dist-info"  # of ours: by its entry points executors find sections of sinks
    assert {f"{metadata}/METADATA", f"{metadata}/entry_points.txt"} <= set(names)
    assert (any(name.startswith("tailrace__mypyc.") for name in names)) == bool(compiled_sources())
    assert {"tailrace_spark/source/changes.py", "tailrace_schemas/change.py", "tailrace_common/kafka/reader.py"} <= set(
        names
    )
    packages = {name.partition("/")[0] for name in names}
    assert {"confluent_kafka", "fastavro", "numpy", "pydantic"} <= packages
    assert not packages & {"pandas", "pyarrow", "pyspark", "py4j", "tailrace", "sqlalchemy", "psycopg"}
    assert not [name for name in names if "/tests/" in name or "/include/" in name]
    assert not [name for name in names if name.endswith(".pyc") or ".." in name]
    assert [one for one in made.distributions if one.startswith("confluent-kafka ")]
    with_sql = write_archive(file, ["numpy", "pandas", "pyarrow"], ["sql", "console"])
    assert {one.partition(" ")[0] for one in with_sql.distributions} >= {"sqlalchemy", "psycopg", "psycopg-binary"}
    with pytest.raises(SettingsError, match=r"^--without rich: the archive has only .*fastavro"):
        write_archive(file, ["rich"])
    with pytest.raises(SettingsError, match="No such file or directory"):
        write_archive(tmp_path / "none" / "file.tar.gz")
