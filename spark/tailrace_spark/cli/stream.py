"""`tailrace stream`: the Spark job from the topics to a sink."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from tailrace_common.build import describe, log_build
from tailrace_common.cli.options import SettingsFile, settings_of
from tailrace_common.cli.signals import stopping
from tailrace_common.http_server import serving
from tailrace_common.kafka.topics import TopicMaker
from tailrace_common.sections.stream import METRICS_PORT
from tailrace_common.settings import Settings, SinkSettings
from tailrace_schemas.errors import ServiceError
from tailrace_spark.cli.support import chosen_sink
from tailrace_spark.job.archive import write_archive
from tailrace_spark.job.checkpoint import store_of
from tailrace_spark.job.endings import await_kafka
from tailrace_spark.job.metrics import MetricsServer, StreamMetrics
from tailrace_spark.job.progress import SinkInfo
from tailrace_spark.job.session import SparkOnce, spark_jars
from tailrace_spark.job.stream import Stream
from tailrace_spark.sinks.letters import LetterTopic
from tailrace_spark.sinks.protocol import ReachableSink
from tailrace_spark.sinks.registry import SINKS, setting_of, sink_of
from tailrace_spark.snapshot.progress import Snapshots, State

log = logging.getLogger("tailrace_spark")

_SET_ASIDE: Final = 3
"""The exit code where it is finished, but for something (docs/design.md)."""
_UNFINISHED: Final = "the stream was ended before it had read all that it was to read; another start goes on from there"


def stream(
    config: SettingsFile = None,
    sink: Annotated[
        str | None, typer.Option(metavar="NAME", help="The [sink.NAME] to write, instead of stream.sink.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Read all present records, then end.")] = False,
    archive: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.tar.gz",
            help="Write what executors need, for spark.archives, and end: our packages, and what they and the sinks of "
            "the settings import (docs/spark.md).",
            show_default=False,
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A distribution that the archive does not need, such as pyarrow; repeatable."
        ),
    ] = None,
    jars: Annotated[
        bool, typer.Option("--jars", help="Print the connector's jars, for spark-submit --jars, and end.")
    ] = False,
) -> None:
    """Follow the topics with Spark and keep a sink equal to the source.

    Runs until SIGTERM or Ctrl-C, and finishes the current batch first. Progress goes to the log. What is to end by
    itself (--once, stream.snapshot = "only") and is ended before has exit code 1.

    Example: tailrace stream -c tailrace.toml
    """
    if jars:
        typer.echo(",".join(map(str, spark_jars())))
        return
    settings = settings_of(config)
    if archive is not None:
        _archive(archive, without or (), settings)
        return
    log_build(log)
    chosen, section = chosen_sink(settings, sink)
    log.info("starting Spark and opening sink %s: the first batch follows in about half a minute", chosen)
    with SparkOnce(settings.stream.spark.reveal()) as spark:
        target, about = _sink(settings, chosen, section)  # before Spark, which takes its time to start
        try:
            LetterTopic.of(settings, chosen).prepare()
            checkpoint = settings.stream.checkpoint_of(chosen)
            log.info("checkpoint: %s; relative paths of the settings are below %s", checkpoint, Path.cwd())
            _follow(settings.with_stream(checkpoint=checkpoint), target, about, spark, once=once)
        finally:
            target.close()
    log.info("the stream into %s has ended: another start goes on behind its last batch, from %s", chosen, checkpoint)


def _archive(file: Path, without: Collection[str], settings: Settings) -> None:
    written = write_archive(file, without, {section.type for section in settings.sink.values()})
    names = ", ".join(written.distributions)
    log.info("%s: %d files, %.0f MB: ours (%s), %s", file, written.files, written.size / 1e6, describe(), names)


def _follow(settings: Settings, target: ReachableSink, about: SinkInfo, spark: SparkOnce, *, once: bool) -> None:
    stop, metrics = threading.Event(), StreamMetrics(about)
    listen = partial(MetricsServer, metrics, settings.stream.metrics_address)
    with (
        stopping(stop, log, "finishing the current batch"),
        serving(listen, settings.stream.metrics_port, METRICS_PORT),
    ):
        if once:
            topics = TopicMaker(settings.kafka.reveal())
            await_kafka(topics.partitions, settings.stream.once_wait_seconds, wait=stop.wait)
        session, read = spark(), Snapshots(copies=True)
        with stopping(stop, log, "finishing the current batch"):  # again, for Spark has taken SIGINT
            if not stop.is_set():
                job = Stream(session, settings, target, stop=stop, metrics=metrics)
                job.run(**({"availableNow": True} if once else {}))
                read = job.snapshots
            if settings.stream.snapshot == "only":
                require_read(read)
            elif once and stop.is_set():
                raise ServiceError(_UNFINISHED)


def require_read(snapshots: Snapshots) -> None:
    """What follows where snapshots alone were asked for. Raises ServiceError unless all have ended.

    Ends with the exit code for what was set aside where a table is not read.
    """
    if snapshots.unplanned or not all(snapshot.state.ended for snapshot in snapshots.tables):
        raise ServiceError(_UNFINISHED)
    if any(snapshot.state in (State.REFUSED, State.DROPPED) for snapshot in snapshots.tables):
        raise typer.Exit(_SET_ASIDE)


def _sink(settings: Settings, chosen: str, sink: SinkSettings) -> tuple[ReachableSink, SinkInfo]:
    target = sink_of(settings, chosen)
    try:
        target.reach()
    except ServiceError as error:
        target.close()
        raise ServiceError(f"{setting_of(chosen, sink)} cannot be opened: {error}") from error
    log.info("streaming into sink %s: %s", chosen, sink.location)
    store = store_of(sink.identity)
    return target, SinkInfo(chosen, sink.type, sink.location, SINKS[sink.type].document, store)
