"""What a commit of an Iceberg table changes, while pyiceberg looks at the table's manifests in several threads."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Any, Final

import pyarrow as pa
import pytest
from pyiceberg.expressions.visitors import _ManifestEvalVisitor

from tailrace_spark.sinks.iceberg.files import change_files, write_rows
from tailrace_spark.sinks.iceberg.settings import IcebergSinkSettings
from tailrace_spark.sinks.iceberg.store import IcebergStore

NAME: Final = "shop.plain"
SECONDS: Final = 30


def rows_of(bucket: int) -> Any:
    return pa.table({"bucket": pa.array([bucket], pa.int32())})


def table_of_two_manifests(store: IcebergStore) -> Any:
    """With a partition in each, as pyiceberg's Table."""
    store.make(NAME, rows_of(0).to_reader(), {}, partitioned_by="bucket", says="")
    made = store.open(NAME)
    assert made is not None
    store.commit_staged(NAME, made, store.stage(NAME, made, rows_of(1).to_reader()), {})
    opened = store.open(NAME)
    assert opened is not None
    return opened.iceberg


@pytest.mark.slow
def test_a_manifest_is_judged_by_its_own_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread has begun to judge the manifest of the removed file, when another judges the other manifest."""
    table = table_of_two_manifests(IcebergStore(IcebergSinkSettings(path=str(tmp_path), mode="current")))
    [removed] = [task.file for task in table.scan().plan_files() if task.file.partition[0] == 0]
    added = write_rows(table.metadata, table.io, rows_of(0), 1 << 20)
    begun, judged = Event(), Event()

    def begin(visitor: Any, partitions: Any) -> None:
        if partitions[0].lower_bound == bytes(4):
            visitor.begun_with = partitions
            begun.set()
            assert judged.wait(SECONDS)
        else:
            assert begun.wait(SECONDS)
            visitor.begun_with = partitions
            judged.set()

    fields = property(lambda visitor: visitor.begun_with, begin)
    monkeypatch.setattr(_ManifestEvalVisitor, "partition_fields", fields, raising=False)
    with table.transaction() as transaction:
        change_files(transaction, added, [removed])
    assert judged.is_set()
    assert sorted(table.scan().to_arrow()["bucket"].to_pylist()) == [0, 1]
