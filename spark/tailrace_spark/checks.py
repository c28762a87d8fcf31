"""The Spark half's part of `tailrace check`: Java, the sink, the checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tailrace_common.checks import Check, judge, may_write
from tailrace_common.java import find_java
from tailrace_common.settings import Settings, SinkSettings
from tailrace_schemas.errors import TailraceError
from tailrace_spark.session import SparkOnce
from tailrace_spark.sinks.registry import jars_of, open_sink, setting_of


def check_stream(settings: Settings) -> Iterator[Check]:
    """What `tailrace stream` needs besides Kafka."""
    yield _java()
    try:
        name, sink = settings.stream_sink()
    except ValueError as error:
        yield Check("sink", False, str(error), "name one of them in [stream]")
    else:
        yield _sink(name, sink, settings)
    checkpoint = settings.stream.checkpoint
    if "://" in checkpoint:
        yield Check("checkpoint", True, f"{checkpoint} (Spark reaches it; not looked at)")
    else:
        advice = "set stream.checkpoint to a directory that this user may write"
        yield judge("checkpoint", may_write(Path(checkpoint)), str(Path(checkpoint).absolute()), advice)


def _java() -> Check:
    try:
        return Check("java", True, str(find_java()))
    except TailraceError as error:
        return Check("java", False, str(error), "install Java 17 or 21, or pip install 'tailrace[spark]'")


def _sink(name: str, section: SinkSettings, settings: Settings) -> Check:
    """SQLite files are looked at, not opened: that would make them. Other stores are connected to."""
    title, file = f"sink {name}", section.location.removeprefix("sqlite:///")
    if file != section.location:
        directory = Path(file).absolute().parent
        if not directory.is_dir():
            return Check(title, False, f"{directory} is no directory", f"make it, or set sink.{name}.url")
        return judge(
            title, may_write(Path(file)), str(Path(file).absolute()), f"set sink.{name}.url to a writable file"
        )
    try:
        with SparkOnce(settings.stream.spark.reveal(), jars_of(section)) as spark:
            sink = open_sink(name, section, settings.topics.prefix, kafka=settings.kafka.reveal(), session=spark)
            try:
                sink.reach()
            finally:
                sink.close()
    except TailraceError as error:
        return Check(title, False, str(error), f"see {setting_of(name, section)}")
    return Check(title, True, section.location)
