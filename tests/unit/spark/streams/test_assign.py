"""Marks of records against exact arithmetic, for write times of any 64 bits."""

from __future__ import annotations

import importlib
import sys
import zipfile
from pathlib import Path
from typing import Final
from zipimport import zipimporter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.ring import Node, Ring
from tailrace_schemas.streams import build_generation
from tailrace_schemas.tokens import MAX_TOKEN, MIN_TOKEN
from tailrace_spark.streams.assign import LATENESS_SECONDS, assigned_here, begin_task
from tailrace_spark.streams.lookup import StreamTable
from tests.unit.spark.sinks.hostile import WRITE_TIMES

TABLE: Final = StreamTable.of([build_generation(Ring((Node("a", "dc", (0,)),)), 1, timestamp=0, seed=0)])
PUBLISHED: Final = 1_760_000_000_000
EDGE: Final = (PUBLISHED - LATENESS_SECONDS * 1000) * 1000
TIMES: Final = st.sampled_from([*WRITE_TIMES, EDGE - 1, EDGE]) | st.integers(-(2**63) + 1, 2**63 - 1)


@given(TIMES, st.sampled_from([MIN_TOKEN, 0, MAX_TOKEN]), st.none() | st.just(PUBLISHED))
def test_late_is_what_was_published_long_after_its_write(written: int, token: int, published: int | None) -> None:
    """Without a time of Kafka: a row that was read, as if it was published when it was written."""
    at = written // 1000 if published is None else published
    head = {
        "op": "insert", "token": token, "written": written, "ttl": None, "expires": None, "digest": bytes(16),
        "topic": "t.shop.plain", "partition": 0, "offset": 0, "schema_id": bytes(8), "published": at, "value": b"",
    }  # fmt: skip
    [row] = assigned_here(pa.Table.from_pylist([head]), TABLE, "t").to_pylist()
    assert ("late" in row["marks"]) == (at * 1000 - written > LATENESS_SECONDS * 1_000_000)
    assert ("before_first" in row["marks"]) == (written < 0)


def test_what_an_archive_has_can_still_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "some.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("first_of_archive.py", "A = 1")
        file.writestr("second_of_archive.py", "B = 2")
    monkeypatch.setattr(sys, "path", [str(archive), *sys.path])
    try:
        assert importlib.import_module("first_of_archive").A == 1
        assert isinstance(sys.path_importer_cache[str(archive)], zipimporter)
        begin_task()
        assert not any(isinstance(one, zipimporter) for one in sys.path_importer_cache.values())
        importlib.invalidate_caches()
        assert importlib.import_module("second_of_archive").B == 2
    finally:
        begin_task()
        sys.modules.pop("first_of_archive", None)
        sys.modules.pop("second_of_archive", None)
