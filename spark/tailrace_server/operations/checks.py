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
from tailrace_common.settings import Settings, SinkSettings
from tailrace_common.topics import SchemaReader
from tailrace_schemas.errors import SettingsError, TailraceError
from tailrace_schemas.masks import Masks
from tailrace_schemas.table import Table
from tailrace_server.model.subscription import Request
from tailrace_server.operations.asking import own_settings
from tailrace_server.operations.operations import IN_PART, SOURCE
from tailrace_spark.cli.check import check_sink
from tailrace_spark.merge.condition import RowFilters, predicate_of
from tailrace_spark.shaping import NO_WHOLE_ROWS, Filters, masks_of, newest, split_conditions
from tailrace_spark.sinks.changelog.routes import require_key_columns
from tailrace_spark.sinks.protocol import Capabilities
from tailrace_spark.sinks.registry import sink_of

WHERE: Final = "where"
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
    able, masks = _capabilities(settings, request.name), masks_of(settings.stream)
    yield from shapes_checked(request, matches, masks, written=able.logs_changes, rows=able.filtering is not None)
    yield from routes_checked(request.name, matches, settings.sink[request.name], masks)


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


def shapes_checked(
    request: Request, matches: Sequence[Table], masks: Masks | None, *, written: bool, rows: bool = False
) -> Iterator[Check]:
    """Whether filter and masks fit. Of a pattern those tables that do not fit are left out, unless none fits.

    `written`: the sink keeps a log of changes; `rows`: it can be asked for rows by columns outside the key.
    """
    if request.shape.where is not None:
        try:
            row_filters, conditions = split_conditions({str(request.table): request.shape.where}, WHERE)
        except SettingsError as error:
            yield Check(WHERE, False, str(error), "")
            return
        if row_filters and not rows:
            yield Check(WHERE, False, NO_WHOLE_ROWS.format(WHERE), "")
            return
        yield from _fit(WHERE, matches, lambda table: Filters(conditions, written=written).check(table))
        yield from _fit(WHERE, matches, partial(_require_rows, row_filters, masks))
    if masks is not None:
        yield from _fit("columns", matches, masks.check)


def _require_rows(filters: RowFilters, masks: Masks | None, table: Table) -> None:
    predicate_of(filters, table if masks is None else masks.table(table))


def routes_checked(name: str, matches: Sequence[Table], section: SinkSettings, masks: Masks | None) -> Iterator[Check]:
    """Whether the columns by which the sink's names are filled in are in the tables' partition keys."""
    for setting, columns in section.routed_by.items():
        if columns:
            yield from _fit(f"sink.{name}.{setting}", matches, partial(_require_route, setting, columns, masks))


def _require_route(setting: str, columns: Sequence[str], masks: Masks | None, table: Table) -> None:
    require_key_columns(table if masks is None else masks.table(table), setting, columns)


def _fit(setting: str, matches: Sequence[Table], require: Callable[[Table], None]) -> Iterator[Check]:
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
