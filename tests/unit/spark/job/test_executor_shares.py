"""The records of a batch as executors write them, without Spark: the stream's id, definitions, missing packages."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest
from pyspark.errors import PythonException

from tailrace_schemas.avro import SchemaEntry
from tailrace_spark.batch.delivery import partition_counts
from tailrace_spark.job.checkpoint import decode_note
from tailrace_spark.job.checkpoint_files import LocalFiles
from tailrace_spark.job.runner import ExecutorShares, MissingPackagesError, stream_id
from tailrace_spark.tasks.job import TaskRunner
from tests.unit.spark.sinks.planned import PlannedWriter
from tests.unit.tables import table


class Heads:
    """As the DataFrame of a batch whose records have these schema ids; None: whoever asks fails."""

    def __init__(self, *ids: bytes | None) -> None:
        self._ids = ids

    def select(self, *names: str) -> Heads:
        assert names == ("schema_id",)
        return self

    def distinct(self) -> Heads:
        return Heads(*dict.fromkeys(self._ids))

    def collect(self) -> list[Any]:
        return [SimpleNamespace(schema_id=None if name is None else bytearray(name)) for name in self._ids]


def entry(name: str, topic: str, part: Literal["value", "key"] = "value") -> SchemaEntry:
    of = table({"id": "int"}, name=topic)
    return SchemaEntry(schema_id=name.encode(), topic=topic, table=of, avro="", part=part, announced=0)


class Failing:
    """As TaskRunner, without Spark."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def run(self, *_: object) -> Any:
        raise self._error


def test_the_streams_id_is_in_the_checkpoint_and_stays(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    stream = stream_id(files)
    assert decode_note(files.read("tasks.json") or "", "tasks.json")["stream"] == stream
    assert stream_id(files) == stream != stream_id(LocalFiles(tmp_path / "another"))


def test_spark_plans_offsets_for_all_partitions_of_a_topic() -> None:
    ends = {("t.ks.t", 0): 5, ("t.ks.t", 1): 7, ("t.ks.other", 4): 1}
    assert partition_counts(ends) == {"t.ks.t": 2, "t.ks.other": 5}


@pytest.mark.parametrize(
    ("topics", "heads", "definitions"),
    [
        (["one", "empty"], None, ["first", "its key"]),
        (["one", "several"], Heads(b"first", b"third", b"third", b"unheard of", None), ["first", "third"]),
    ],
    ids=["by their topics", "where a topic has had several"],
)
def test_the_definitions_of_records_are_known_before_any_task_runs(
    topics: list[str], heads: Heads | None, definitions: list[str]
) -> None:
    """A record that is no change has no schema, and nobody has published that of another."""
    published = {
        made.schema_id: made
        for made in (
            entry("first", "one"), entry("its key", "one", "key"), entry("second", "several"),
            entry("third", "several"), entry("other", "not in the batch"),
        )
    }  # fmt: skip
    partitions = dict.fromkeys(topics, 1)
    shares = ExecutorShares(cast(TaskRunner, None), cast(Any, heads), cast(Any, None), published, partitions)
    assert [of.schema_id.decode() for of in shares.schemas()] == definitions


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        ("... ModuleNotFoundError: No module named 'fastavro' ...", MissingPackagesError,
         r"no module fastavro: bring it by `tailrace stream --archive"),
        ("what else", PythonException, "what else"),
    ],
)  # fmt: skip
def test_packages_that_executors_lack_are_named_with_the_remedy(words: str, error: type[Exception], said: str) -> None:
    tasks = cast(TaskRunner, Failing(PythonException(words)))
    shares = ExecutorShares(tasks, cast(Any, "the records"), cast(Any, "the generations"), {}, {})
    with pytest.raises(error, match=said):
        shares.run(PlannedWriter(0))
