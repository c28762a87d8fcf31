"""Builds what reads the snapshots of one stream."""

from __future__ import annotations

import threading

from pyspark.sql import SparkSession

from tailrace_common.settings import Settings
from tailrace_schemas.errors import SettingsError
from tailrace_spark.job.checkpoint_files import Folder, files_in
from tailrace_spark.job.fitness import refused_by
from tailrace_spark.job.metrics import StreamMetrics
from tailrace_spark.job.offsets import PlannedOffsets
from tailrace_spark.job.runner import Runner
from tailrace_spark.job.snapshot_context import SnapshotContext
from tailrace_spark.job.snapshot_notes import REQUESTS, Notes, SnapshotNotes
from tailrace_spark.job.snapshot_run import SnapshotRun
from tailrace_spark.job.snapshot_writing import RoundWriter
from tailrace_spark.sinks.protocol import Sink
from tailrace_spark.source.kafka import reads_topic


def snapshot_run(
    spark: SparkSession,
    settings: Settings,
    sink: Sink,
    runner: Runner,
    planned: PlannedOffsets,
    files: Folder,
    alone: threading.Lock,
    metrics: StreamMetrics,
    notes: Notes | None,
) -> SnapshotRun:
    """The snapshots of a stream into a sink; `files` are those of `<checkpoint>/tailrace`, for the notes by default.

    Raises SettingsError where stream.snapshot asks for what the sink cannot take.
    """
    stream, refuses = settings.stream, refused_by(sink.capabilities)
    if refuses is not None and stream.chooses_snapshot and stream.snapshot != "never":
        raise SettingsError(f'stream.snapshot = "{stream.snapshot}" is not for this sink: {refuses}')
    folder = f"{stream.checkpoint.rstrip('/')}/tailrace/{REQUESTS}"
    return SnapshotRun(
        spark,
        settings,
        sink,
        notes or SnapshotNotes(files, files_in(spark, folder), stream.checkpoint),
        SnapshotContext(spark, settings, reads_topic(spark, settings)),
        RoundWriter(spark, settings, sink, runner),
        planned,
        own_notes=notes is None,
        alone=alone,
        metrics=metrics,
    )
