"""`tailrace stream`: the Spark job from the topics to a sink."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from stamina.instrumentation import set_on_retry_hooks

from tailrace_common.settings import Settings, load_settings
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.pipeline import Stream
from tailrace_spark.session import spark_session
from tailrace_spark.sinks.choice import ReachableSink, open_sink

log = logging.getLogger("tailrace_spark")


def stream(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="The settings, TOML. Without it: the defaults. TAILRACE_SECTION__NAME variables win over both.",
            show_default=False,
        ),
    ] = None,
    sink: Annotated[
        str | None, typer.Option(metavar="NAME", help="The [sink.NAME] to write, instead of stream.sink.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Read what is there, then end.")] = False,
) -> None:
    """Follow the topics with Spark and keep a sink equal to the source.

    Runs until SIGTERM or Ctrl-C; a batch that is being written is finished first. Progress goes to the log.

    Example: tailrace stream -c tailrace.toml
    """
    settings = load_settings(config, os.environ)
    set_on_retry_hooks(())  # our own log says of a retry what matters
    target = _sink(settings, sink)  # before Spark, which takes its time to start
    stop = threading.Event()
    with _stopping(stop):
        session = spark_session(settings.stream.spark.reveal())
        try:
            with _stopping(stop):  # again, for Spark has taken SIGINT
                if not stop.is_set():
                    Stream(session, settings, target, stop=stop).run(**({"availableNow": True} if once else {}))
        finally:
            target.close()
            session.stop()
    log.info("the stream has ended")


def _sink(settings: Settings, name: str | None) -> ReachableSink:
    try:
        chosen, sink = (name, settings.sink[name]) if name is not None else settings.stream_sink()
    except KeyError:
        raise SettingsError(f"--sink {name}: there is no [sink.{name}]; set: {', '.join(settings.sink)}") from None
    except ValueError as error:
        raise SettingsError(str(error)) from None
    target = open_sink(chosen, sink, settings.topics.prefix, settings.generations.ring_delay_seconds)
    try:
        target.reach()
    except ServiceError as error:
        target.close()
        raise ServiceError(f"sink.{chosen}{'.url' if sink.type == 'sql' else ''} cannot be opened: {error}") from error
    log.info("streaming into sink %s: %s", chosen, sink.location)
    return target


@contextmanager
def _stopping(stop: threading.Event) -> Iterator[None]:
    """While inside, SIGTERM and SIGINT set the event instead of ending the process."""

    def tell(number: int, _frame: FrameType | None) -> None:
        log.info("%s: finishing the current batch", signal.Signals(number).name)
        stop.set()

    before = {number: signal.signal(number, tell) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
