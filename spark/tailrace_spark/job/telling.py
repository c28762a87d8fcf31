"""What a stream tells the tools around it, where the settings ask for that: spans of its batches, and its lineage."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from tailrace_common.closing import Closing
from tailrace_common.settings import Settings
from tailrace_common.topics import SchemaReader
from tailrace_spark.job.lineage import Lineage
from tailrace_spark.job.lineage_tables import lineage_of
from tailrace_spark.job.progress import Progress
from tailrace_spark.job.traces import BatchTraces
from tailrace_spark.shaping import Shape


class Telling(Closing):
    """Of one stream. `options` are those of Spark's Kafka source that it needs."""

    def __init__(self, settings: Settings, name: str, location: str) -> None:
        """`location` names the sink without secrets. Raises SettingsError where a package lacks."""
        self._settings = settings
        self._traces = BatchTraces(settings.traces, name, location)
        self._lineage: Lineage | None = None
        self.options = self._traces.options

    @contextmanager
    def running(
        self, schemas: SchemaReader, shape: Shape | None, spark: SparkSession, ending: Collection[str]
    ) -> Iterator[None]:
        """A run of the stream, which has a lineage; `ending` is empty for one that runs on. Raises as `lineage_of`."""
        self._lineage = lineage_of(self._settings, schemas, shape, spark, ending)
        with self._lineage.running():
            yield

    def wrote(self, progress: Progress) -> None:
        """A batch is in the sink, just now."""
        self._traces.wrote(progress)
        if self._lineage is not None:
            self._lineage.wrote(progress)

    def close(self) -> None:
        """Send the spans that wait, for a few seconds at most."""
        self._traces.close()
