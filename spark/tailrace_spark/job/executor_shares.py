"""The records of a batch as Spark's executors write them, and the id under which a stream's shares are written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from pyspark.errors import PythonException
from pyspark.sql import DataFrame

from tailrace_schemas.avro import SchemaEntry
from tailrace_spark.job.checkpoint_files import Files
from tailrace_spark.job.notes import decode_note, encode_note
from tailrace_spark.job.runner import MissingPackagesError
from tailrace_spark.sinks.protocol import DataWriter
from tailrace_spark.snapshot.read_back import ReadBack
from tailrace_spark.streams.lookup import StreamTable
from tailrace_spark.tasks.job import TaskRunner
from tailrace_spark.tasks.outcome import Outcome

_NOTE: Final = "tasks.json"
_NO_MODULE: Final = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")


@dataclass(frozen=True, slots=True)
class ExecutorShares:
    """As Shares: a batch of `with_head`. `published` are all schemas by id, in a copy that stays as it is.

    `partitions` counts those of each topic that it has records of; None: these are in any, whatever their tokens.
    """

    tasks: TaskRunner
    frame: DataFrame
    table: StreamTable
    published: Mapping[bytes, SchemaEntry]
    partitions: Mapping[str, int | None]
    read_back: ReadBack | None = None

    def schemas(self) -> Iterable[SchemaEntry]:
        """As Shares says. The heads of the records are read where a topic has had several definitions."""
        entries = [entry for entry in self.published.values() if entry.topic in self.partitions]
        values = [entry.topic for entry in entries if entry.part == "value"]
        if len(values) == len(set(values)):
            return entries
        heads = self.frame.select("schema_id").distinct().collect()
        used = {bytes(head.schema_id) for head in heads if head.schema_id is not None}
        return [entry for schema_id, entry in self.published.items() if schema_id in used]

    def run(self, writer: DataWriter) -> Sequence[Outcome]:
        """As Shares says. Raises what Spark does, where a job fails."""
        try:
            return self.tasks.run(self.frame, writer, self.table, self.published, self.partitions, self.read_back)
        except PythonException as error:
            raise missing_packages(error) from error


def stream_id(files: Files) -> str:
    """The id of a checkpoint's stream; it is in the checkpoint before anybody hears of it.

    `files` are those of `<checkpoint>/tailrace`.
    """
    text = files.read(_NOTE)
    if text is None:
        text = encode_note(stream=uuid4().hex)
        files.write(_NOTE, text)
    return str(decode_note(text, _NOTE)["stream"])


def missing_packages(error: PythonException) -> Exception:
    """What a job's failure is about: packages that the executors' Python lacks, or what it says itself."""
    lacking = _NO_MODULE.search(str(error))
    if lacking is None:
        return error
    return MissingPackagesError(
        f"the executors' Python has no module {lacking[1]}: bring it by `tailrace stream --archive FILE` and "
        "spark.archives (docs/spark.md)"
    )
