"""What is looked at before a subscription is kept: its tables in the source, filter and masks, and its sink."""

from __future__ import annotations

import difflib
import fnmatch
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Final

from tailrace_common.cli.checks import Check
from tailrace_common.settings import Settings
from tailrace_common.topics import SchemaReader
from tailrace_schemas.errors import SettingsError, TailraceError
from tailrace_schemas.masks import Masks
from tailrace_schemas.table import Table
from tailrace_server.model.subscription import Request
from tailrace_server.operations.asking import own_settings
from tailrace_server.operations.operations import IN_PART, SOURCE
from tailrace_spark.cli.check import check_sink
from tailrace_spark.merge.condition import predicate_of
from tailrace_spark.shaping import NO_WHOLE_ROWS, Filters, masks_of, newest, split_conditions
from tailrace_spark.sinks.changelog.routes import require_key_columns
from tailrace_spark.sinks.protocol import Capabilities
from tailrace_spark.sinks.registry import sink_of

WHERE: Final = "where"
Requirement = Callable[[Table], object]
"""Raises SettingsError for a table that does not fit."""
_MOST_GUESSES: Final = 20  # each looks at all columns
_KAFKA_SECONDS: Final = 5.0
_SINK_SECONDS: Final = 15.0


def examined(settings: Settings, request: Request) -> list[Check]:
    """What was looked at. It raises nothing: a worker may reach what this server does not."""
    settings = own_settings(settings, request.table, request.name, request.sink, request.shape)
    return [*_source(settings, request), within(lambda: _sink(settings, request), _SINK_SECONDS)]


def _source(settings: Settings, request: Request) -> Iterator[Check]:
    tables: Sequence[Table] = ()
    try:
        tables = _published(settings)
    except TailraceError as error:
        yield Check(SOURCE, False, str(error), "see [kafka] of this server's settings, and whether an agent runs")
    else:
        yield tables_known(request, tables)
    matches = matching(request, tables)
    yield from columns_checked(request, matches)
    yield from fit_checked(settings, request.name, _capabilities(settings, request.name), matches)


def published_tables(settings: Settings) -> list[str]:
    """The names of the tables of which anything is published. Raises ServiceError where Kafka does not answer."""
    return sorted({str(table) for table in _published(settings)})


def _published(settings: Settings) -> list[Table]:
    kafka, prefix = settings.kafka.reveal(), settings.topics.prefix
    with SchemaReader(kafka, prefix, ordered=True, timeout=_KAFKA_SECONDS) as schemas:
        schemas.refresh()
        return [table for _, table in newest(schemas.values())]


def matching(request: Request, tables: Sequence[Table]) -> list[Table]:
    """The tables that a request is about."""
    return [table for table in tables if fnmatch.fnmatchcase(str(table), str(request.table))]


def tables_known(request: Request, tables: Sequence[Table]) -> Check:
    """Whether any of its tables is known."""
    pattern = str(request.table)
    names = sorted({str(table) for table in matching(request, tables)})
    if names:
        return Check(SOURCE, True, f"published: {', '.join(names[:5])}{' and more' * (len(names) > 5)}")
    existing = sorted({str(table) for table in tables})
    close = difflib.get_close_matches(pattern, existing, n=1)
    hint = f"did you mean {close[0]}?" if close else f"published so far: {', '.join(existing[:10]) or 'nothing'}"
    return Check(SOURCE, False, f"nothing of {pattern} has been published yet", hint)


def columns_checked(request: Request, matches: Sequence[Table]) -> Iterator[Check]:
    """Whether the columns that are treated exist, as far as tables are known."""
    columns = {column.name for table in matches for column in (*table.key, *table.columns)}
    names = request.shape.columns if matches else ()
    unknown = [name for name in names if not any(fnmatch.fnmatchcase(column, name) for column in columns)]
    for index, name in enumerate(unknown):
        close = difflib.get_close_matches(name, columns, n=1) if index < _MOST_GUESSES else []
        hint = f"did you mean {close[0]}?" if close else f"columns: {', '.join(sorted(columns)[:20])}"
        yield Check(f"columns.{name}", False, "no table of these has it", hint)


def fit_checked(settings: Settings, name: str, able: Capabilities, matches: Sequence[Table]) -> Iterator[Check]:
    """Whether tables fit. Of a pattern those that do not are left out, unless none fits."""
    try:
        required = list(requirements(settings, name, able))
    except SettingsError as error:
        yield Check(WHERE, False, str(error), "")
        return
    for setting, require in required:
        yield from _fit(setting, matches, require)


def requirements(settings: Settings, name: str, able: Capabilities) -> Iterator[tuple[str, Requirement]]:
    """What a table has to fit, by the setting that says so: filter, masks, and names that its keys fill in.

    `name` is that of the sink. Raises SettingsError for a filter that fits no table.
    """
    stream, section = settings.stream, settings.sink[name]
    masks, (rows, conditions) = masks_of(stream), split_conditions(stream.where, WHERE)
    if rows and able.filtering is None:
        raise SettingsError(NO_WHOLE_ROWS.format(WHERE))
    if conditions:
        yield WHERE, lambda table: Filters(conditions, written=able.logs_changes).check(table)
    if rows:
        yield WHERE, lambda table: predicate_of(rows, table if masks is None else masks.table(table))
    if masks is not None:
        yield "columns", masks.check
    for setting, columns in section.routed_by.items():
        if columns:
            yield f"sink.{name}.{setting}", partial(_require_route, setting, columns, masks)


def _require_route(setting: str, columns: Sequence[str], masks: Masks | None, table: Table) -> None:
    require_key_columns(table if masks is None else masks.table(table), setting, columns)


def _fit(setting: str, matches: Sequence[Table], require: Requirement) -> Iterator[Check]:
    refusals: dict[str, str] = {}
    for table in matches:
        try:
            require(table)
        except SettingsError as error:
            refusals[str(table)] = str(error)
    if not refusals:
        return
    words = "; ".join(refusals.values())
    if len(refusals) == len(matches):
        yield Check(setting, False, words, "")
    else:
        yield Check(setting + IN_PART, True, f"{', '.join(sorted(refusals))} will be left out: {words}", "")


def _capabilities(settings: Settings, name: str) -> Capabilities:
    """What the sink can do; it is not connected to."""
    try:
        with closing(sink_of(settings, name)) as sink:
            return sink.capabilities
    except TailraceError:
        return Capabilities()  # the sink's own check says what is wrong with it


def _sink(settings: Settings, request: Request) -> Check:
    try:
        return check_sink(request.name, settings.sink[request.name], settings)
    except TailraceError as error:
        return Check(f"sink {request.name}", False, str(error), "")


def within(check: Callable[[], Check], seconds: float) -> Check:
    """What a check says; else that it did not answer in time. Its thread ends by itself."""
    results: list[Check] = []
    thread = threading.Thread(target=lambda: results.append(check()), name="check", daemon=True)
    thread.start()
    thread.join(seconds)
    if results:
        return results[0]
    return Check("sink", False, f"no answer from the sink within {seconds:g} s", "is its address right?")
