"""`tailrace_streams`: each stream has its own row, and a backup of the database has it too."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tailrace_schemas.errors import ServiceError
from tailrace_spark.batch.sink_progress import SinkProgress
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.unit.spark.sinks.contract import Database


def test_the_last_of_each_stream_is_kept(database: Database) -> None:
    first, later = SinkProgress("s", 0, {("t.ks.t", 0): 5}), SinkProgress("s", 1, {("t.ks.t", 0): 9, ("t.ks.u", 3): 1})
    with closing(SqlSink(database.url)) as sink:
        assert sink.capabilities.progress is sink
        assert sink.progress("s") is None
        sink.keep_progress(later)
        sink.keep_progress(first)  # another life of its checkpoint: whatever was kept last holds
        sink.keep_progress(SinkProgress("other", 4, {}))
        assert sink.progress("s") == first
    with closing(SqlSink(database.url)) as sink:
        assert sink.progress("s") == first
        assert sink.progress("other") == SinkProgress("other", 4, {})
        sink.keep_progress(later)
        assert sink.progress("s") == later


def test_a_file_that_was_deleted_has_nothing_of_a_stream_in_the_same_process(tmp_path: Path) -> None:
    with closing(SqlSink(f"sqlite:///{tmp_path / 'sink.db'}")) as sink:
        sink.keep_progress(SinkProgress("s", 0, {}))
        for file in tmp_path.glob("sink.db*"):
            file.unlink()
        with pytest.raises(ServiceError, match="no such table"):
            sink.progress("s")
        assert sink.progress("s") is None
