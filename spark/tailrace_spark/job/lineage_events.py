"""Events of OpenLineage by its own client, sent in a thread of their own. The one importer of openlineage."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState, set_producer
from openlineage.client.facet_v2 import (
    DatasetFacet,
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    processing_engine_run,
    schema_dataset,
)
from openlineage.client.uuid import generate_new_uuid

from tailrace_common.secrets import redact
from tailrace_common.sections.sink import Dataset
from tailrace_common.sections.stream import LineageSettings
from tailrace_schemas.table import Table
from tailrace_spark.job.lineage import State, TableLineage

log = logging.getLogger("tailrace_spark")

PRODUCER: Final = f"urn:tailrace:{version('tailrace')}"
set_producer(PRODUCER)  # of facets too, whose constructors take none
# A server that does not answer keeps a stream from its end for two events at most.
_HTTP_SECONDS: Final = 3.0
_CLOSE_SECONDS: Final = 8.0
_MOST_WAITING: Final = 100


class LineageEvents:
    """Sends the events of one run. What cannot be sent is lost, and said once in the log.

    `name` is the job's, `spark` the version of Spark, and `ends` says whether the stream ends by itself.
    """

    def __init__(self, settings: LineageSettings, name: str, spark: str, *, ends: bool) -> None:
        self._client = OpenLineageClient(config={"transport": _transport(settings)})
        self._settings = settings
        self._name = name
        self._spark = spark
        self._ends = ends
        self._run = str(generate_new_uuid())
        self._waiting: queue.Queue[RunEvent | None] = queue.Queue(_MOST_WAITING)
        self._failing = False
        self._thread = threading.Thread(target=self._send_all, name="lineage", daemon=True)
        self._thread.start()

    def emit(self, state: State, tables: Iterable[TableLineage], error: str | None = None) -> None:
        """Put an event in the queue, of now; where the queue is full it is lost."""
        datasets = list(tables)
        event = RunEvent(
            eventTime=datetime.now(UTC).isoformat(timespec="milliseconds"),
            producer=PRODUCER,
            eventType=RunState[state.upper()],
            run=Run(self._run, self._run_facets(error)),
            job=Job(self._settings.namespace, self._name, self._job_facets()),
            inputs=[dataset for table in datasets for dataset in _inputs(table)],
            outputs=list(_outputs(datasets)),
        )
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            self._failed("its queue is full")

    def close(self) -> None:
        """Send what waits, for a few seconds at most."""
        try:
            self._waiting.put_nowait(None)
        except queue.Full:
            return  # the thread is a daemon: it ends with the process
        self._thread.join(_CLOSE_SECONDS)

    def _send_all(self) -> None:
        while (event := self._waiting.get()) is not None:
            try:
                self._client.emit(event)
            except Exception as error:  # whatever its transports raise: the stream has no part in it
                self._failed(redact(f"{type(error).__name__}: {error}"))
            else:
                self._failing = False
        self._client.close(_CLOSE_SECONDS)

    def _failed(self, words: str) -> None:
        if not self._failing:
            log.warning("an event of [lineage] was not sent and is lost; the stream goes on: %s", words)
        self._failing = True

    def _run_facets(self, error: str | None) -> dict[str, Any]:
        facets: dict[str, Any] = {
            "processing_engine": processing_engine_run.ProcessingEngineRunFacet(self._spark, "spark")
        }
        if error is not None:
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(error, "PYTHON")
        return facets

    def _job_facets(self) -> dict[str, Any]:
        pattern = job_type_job.EmissionPattern(
            "PERIODIC", "ACCUMULATIVE", max(1, round(self._settings.running_seconds))
        )
        kind = "BATCH" if self._ends else "STREAMING"
        return {"jobType": job_type_job.JobTypeJobFacet(kind, "TAILRACE", "STREAM", pattern)}


def _transport(settings: LineageSettings) -> dict[str, Any]:
    """The client's own form of these settings."""
    if settings.transport == "file":
        return {"type": "file", "log_file_path": str(settings.file), "append": True}
    if settings.transport == "console":
        return {"type": "console"}
    transport: dict[str, Any] = {
        "type": "http", "url": settings.url, "endpoint": settings.endpoint,
        "timeout": _HTTP_SECONDS, "retry": {"total": 1, "connect": 1, "read": 0},
    }  # fmt: skip
    if settings.api_key is not None:
        transport["auth"] = {"type": "api_key", "apiKey": settings.api_key.get_secret_value()}
    return transport


def _inputs(lineage: TableLineage) -> Iterable[InputDataset]:
    """A table's topic, with the records read since the event before; the table itself, where its cluster is known."""
    facets: dict[str, DatasetFacet] = {"schema": _schema(lineage.source)}
    counts = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(lineage.records)
    topic, table = lineage.topic, lineage.cassandra
    yield InputDataset(topic.namespace, topic.name, facets=facets, inputFacets={"inputStatistics": counts})
    if table is not None:
        yield InputDataset(table.namespace, table.name, facets=facets)


def _outputs(tables: Iterable[TableLineage]) -> Iterable[OutputDataset]:
    """What the sink has of each table; once where several tables are in one place, which then has no columns."""
    written: dict[Dataset, Table | None] = {}
    for lineage in tables:
        if lineage.target is not None and lineage.shown is not None:
            written[lineage.target] = None if lineage.target in written else lineage.shown
    for dataset, table in written.items():
        facets: dict[str, DatasetFacet] = {} if table is None else {"schema": _schema(table)}
        yield OutputDataset(dataset.namespace, dataset.name, facets=facets)


def _schema(table: Table) -> schema_dataset.SchemaDatasetFacet:
    columns = (*table.partition_key, *table.clustering, *table.static, *table.regular)
    fields = [
        schema_dataset.SchemaDatasetFacetFields(column.name, str(column.type), ordinal_position=index)
        for index, column in enumerate(columns, 1)
    ]
    return schema_dataset.SchemaDatasetFacet(fields)
