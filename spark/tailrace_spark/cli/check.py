"""The Spark half's part of `tailrace check`: Java, the sink, the checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from tailrace_common.cli.checks import Check, judge, may_write
from tailrace_common.java.find import find_java
from tailrace_common.settings import Settings, SinkSettings
from tailrace_schemas.errors import SettingsError, TailraceError
from tailrace_spark.job.checkpoint_files import LocalFiles
from tailrace_spark.job.fitness import existing_rows, refused_by, require_fit
from tailrace_spark.job.offsets import begun_in
from tailrace_spark.job.snapshot_notes import REQUESTS, SnapshotNotes
from tailrace_spark.sinks.registry import setting_of, sink_of


def check_stream(settings: Settings) -> Iterator[Check]:
    """What `tailrace stream` needs besides Kafka, for each sink of the settings."""
    yield _java()
    yield from _filters(settings)
    for name, sink in settings.sink.items():
        yield check_sink(name, sink, settings)
    for name in settings.sink:
        yield _checkpoint(name, settings)
        yield from _existing_rows(name, settings)
    if len(settings.sink) != 1 and settings.stream.sink is None:
        names = ", ".join(settings.sink) or "none"
        yield Check("stream.sink", bool(settings.sink), f"unset; the sinks are: {names}", "tailrace stream --sink NAME")


def _checkpoint(name: str, settings: Settings) -> Check:
    """Where Spark keeps the place of a sink; of several sinks no two can have the same."""
    alone = len(settings.sink) == 1
    title = "checkpoint" if alone else f"checkpoint {name}"
    path = settings.stream.checkpoint_of(name)
    shared = "" if alone or "{sink}" in settings.stream.checkpoint else "put {sink} into it: each sink needs its own"
    if "://" in path:
        return Check(title, True, f"{path} (Spark reaches it; not looked at)", shared)
    if not may_write(Path(path)):
        advice = "set stream.checkpoint to a directory that this user may write"
        return Check(title, False, str(Path(path).absolute()), advice)
    return Check(title, True, str(Path(path).absolute()), shared)


def _existing_rows(name: str, settings: Settings) -> Iterator[Check]:
    """What a stream into the sink does with rows that tables have already."""
    title = "existing rows" if len(settings.sink) == 1 else f"existing rows {name}"
    try:
        with closing(sink_of(settings, name)) as sink:
            refused = refused_by(sink.capabilities)
        path = settings.stream.checkpoint_of(name)
        files, requests = LocalFiles(Path(path, "tailrace")), LocalFiles(Path(path, "tailrace", REQUESTS))
        noted = SnapshotNotes(files, requests, path).read()
    except TailraceError:
        return  # the checks of the sink and of its checkpoint say what is wrong
    started = begun_in(LocalFiles(Path(path, "sources", "0")))
    rows = existing_rows(settings.stream, noted, started=started, refused=refused)
    unseen = " (if a checkpoint is there, it decides; not looked at)" if "://" in path else ""
    yield Check(title, True, f"{rows.words}{unseen}", rows.advice)


def _filters(settings: Settings) -> Iterator[Check]:
    """What is wrong with filters of rows: their words, or a sink that knows no rows. No sink is connected to."""
    if not settings.stream.where:
        return
    from tailrace_spark.shaping import NO_WHOLE_ROWS, split_conditions  # it imports PySpark

    title = "stream.where"
    try:
        rows, _ = split_conditions(settings.stream.where, title)
    except SettingsError as error:
        yield Check(title, False, str(error), "see docs/shaping.md")
        return
    for name in settings.sink if rows else ():
        try:
            with closing(sink_of(settings, name)) as sink:
                filtering = sink.capabilities.filtering
        except TailraceError:
            continue  # the sink's own check says what is wrong with it
        if filtering is None:
            yield Check(title, False, f"sink {name}: {NO_WHOLE_ROWS.format(title)}", "see docs/shaping.md")


def _java() -> Check:
    try:
        return Check("java", True, str(find_java()))
    except TailraceError as error:
        return Check("java", False, str(error))


def check_sink(name: str, section: SinkSettings, settings: Settings) -> Check:
    """SQLite files are looked at, not opened: that would make them. Other stores are connected to."""
    title, file = f"sink {name}", section.location.removeprefix("sqlite:///")
    try:
        with closing(sink_of(settings, name)) as sink:
            require_fit(settings.stream, sink.capabilities)
            if file != section.location:
                return _file(title, name, Path(file).absolute())
            sink.reach()
            trial = sink.capabilities.trial
            advice = "" if trial is None else trial.try_out()
    except TailraceError as error:
        return Check(title, False, str(error), f"see {setting_of(name, section)}")
    return Check(title, True, section.location, advice)


def _file(title: str, name: str, file: Path) -> Check:
    if not file.parent.is_dir():
        return Check(title, False, f"{file.parent} is no directory", f"make it, or set sink.{name}.url")
    return judge(title, may_write(file), str(file), f"set sink.{name}.url to a writable file")
