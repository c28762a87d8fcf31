"""What is looked at before a subscription is kept: its tables in the source, and its sink, from this server."""

from __future__ import annotations

import difflib
import fnmatch
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tailrace_common.cli.checks import Check
from tailrace_common.settings import Settings
from tailrace_common.topics.schemas import SchemaReader
from tailrace_schemas.errors import TailraceError
from tailrace_schemas.table import Table
from tailrace_server.model.subscription import Request
from tailrace_server.operations.sections import section_of
from tailrace_spark.cli.check import check_sink

_KAFKA_SECONDS: Final = 5.0
_SINK_SECONDS: Final = 15.0


def examined(settings: Settings, request: Request) -> list[Check]:
    """What was looked at. It raises nothing: a worker may reach what this server does not."""
    return [*_source(settings, request), within(lambda: _sink(settings, request), _SINK_SECONDS)]


def _source(settings: Settings, request: Request) -> Iterator[Check]:
    try:
        with SchemaReader(settings.kafka.reveal(), settings.topics.prefix, timeout=_KAFKA_SECONDS) as schemas:
            schemas.refresh()
            tables = [entry.table for entry in schemas.values()]
    except TailraceError as error:
        yield Check("source", False, str(error), "see [kafka] of this server's settings, and whether an agent runs")
        return
    yield from tables_checked(request, tables)


def tables_checked(request: Request, tables: Sequence[Table]) -> Iterator[Check]:
    """Whether the tables are known, and the columns that are treated."""
    pattern = str(request.table)
    matches = [table for table in tables if fnmatch.fnmatchcase(str(table), pattern)]
    names = sorted({str(table) for table in matches})
    if not matches:
        existing = sorted({str(table) for table in tables})
        close = difflib.get_close_matches(pattern, existing, n=1)
        hint = f"did you mean {close[0]}?" if close else f"published so far: {', '.join(existing[:10]) or 'nothing'}"
        yield Check("source", False, f"nothing of {pattern} has been published yet", hint)
        return
    yield Check("source", True, f"published: {', '.join(names[:5])}{' and more' * (len(names) > 5)}")
    columns = {column.name for table in matches for column in (*table.key, *table.columns)}
    for name in request.shape.columns:
        if not any(fnmatch.fnmatchcase(column, name) for column in columns):
            close = difflib.get_close_matches(name, columns, n=1)
            hint = f"did you mean {close[0]}?" if close else f"columns: {', '.join(sorted(columns)[:20])}"
            yield Check(f"column {name}", False, "no table of these has it", hint)


def _sink(settings: Settings, request: Request) -> Check:
    section, _ = section_of(settings, request.table, request.name, request.settings, request.shape)
    chosen = settings.model_copy(update={"sink": {request.name: section}})
    try:
        return check_sink(request.name, section, chosen)
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
