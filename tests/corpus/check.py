"""Holds a corpus against itself: what is decoded of its segments, merged, is what the node answered."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from uuid import UUID

from tailrace.changes.transcode import Transcoder
from tailrace.commitlog.mutation import decode_mutation
from tailrace_schemas.avro import Encoder, SchemaEntry, decode, entry_from_record, schema_records
from tailrace_schemas.change import Change
from tailrace_schemas.clustering import clustering_key
from tailrace_schemas.cql.order import sortable
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import join_key
from tailrace_schemas.table import Table
from tests.corpus.corpus import Corpus, View
from tests.corpus.model import Model, Place, Row
from tests.corpus.shown import check_shown, list_of
from tests.oracle.split import changes_of
from tests.unit.changes.published import published

_PREFIX = "corpus"


def changes_in(corpus: Corpus) -> list[Change]:
    """All changes, those of tables without cdc too."""
    return [
        change
        for logged in corpus.mutations()
        for change in changes_of(
            decode_mutation(logged.payload, logged.version, corpus.tables.get), logged.source, lambda _: True
        )
    ]


def check_view(corpus: Corpus) -> Counter[str]:
    """Fails where the log says another thing than the node. How many changes of each kind there were.

    The changes are merged in another order than the log's, and many more than once.
    """
    models = {table.id: Model(table) for table in corpus.tables.values()}
    changes = changes_in(corpus)
    random = Random(len(changes))
    for change in random.sample([*changes, *changes[::3]], len(changes) + len(changes[::3])):
        models[change.table.id].take(change)
    counts = Counter(change.op.value for change in changes)
    for model in models.values():
        view = corpus.views.get(model.table.id)
        if view is not None:
            _compare(model, view)
    return counts


def _compare(model: Model, view: View) -> None:
    answered = rows_of(model.table, view)
    asked = set(view.columns)
    first: str | None = None
    # The second that the node took for its present is one of those between question and answer.
    for now in range(view.asked[0] - 1, view.asked[1] + 2):
        expected = {place: _visible(row, asked) for place, row in model.at(now).items()}
        if _alike(model, expected) == _alike(model, answered):
            check_shown(model, answered, asked, now)
            return
        first = first or difference(expected, answered)
    raise AssertionError(f"{model.table}: {first}")


def _visible(row: Row, asked: set[tuple[str, str]]) -> Row:
    """The row without what was not asked for."""
    names = ("value", "writetime", "ttl")
    return {
        column: tuple(item if (column, what) in asked else None for what, item in zip(names, shown, strict=True))  # type: ignore[misc]  # three items stay three
        for column, shown in row.items()
    }


def _alike(model: Model, rows: dict[Place, Row]) -> dict[Place, Row]:
    """The rows, with one form for elements of which a node keeps the first that it saw."""
    types = {column.name: column.type for column in model.table.columns}
    tied = {
        place: {name: (_ordered(types[name], row[name][0]), *row[name][1:])}
        for place, row in rows.items()
        for key, name in model.ties
        if place[0] == key
    }
    return {place: {**row, **tied.get(place, {})} for place, row in rows.items()}


def _ordered(cql_type: CqlType, value: bytes | None) -> bytes | None:
    """A set's or map's value, in which its elements or keys are as they order."""
    if value is None or cql_type.kind not in ("map", "set"):
        return value
    parts = list_of(value, 2 if cql_type.kind == "map" else 1)
    step = len(cql_type.args)
    return b"".join(
        (part or b"") if at % step else sortable(cql_type.args[0], part, False) for at, part in enumerate(parts)
    )


def rows_of(table: Table, view: View) -> dict[Place, Row]:
    """The rows of a view, placed as the model places them."""
    found: dict[Place, Row] = {}
    for answered in view.rows:
        values = dict(zip(view.columns, answered, strict=True))
        parts = [values[column.name, "value"] for column in table.partition_key]
        key = join_key([column.type for column in table.partition_key], [part or b"" for part in parts])
        clustering = tuple(values[column.name, "value"] for column in table.clustering)
        alone = bool(table.static) and None in clustering
        place = key, None if alone else clustering_key(table, clustering)
        assert place not in found, f"{table}: {place} twice"
        found[place] = {
            column.name: (
                values[column.name, "value"],
                values.get((column.name, "writetime")),
                values.get((column.name, "ttl")),
            )
            for column in table.columns
        }
    return found


def difference(expected: dict[Place, Row], answered: dict[Place, Row]) -> str:
    """The first thing that differs, for people."""
    for place in sorted({*expected, *answered}, key=str):
        ours, theirs = expected.get(place), answered.get(place)
        if ours is None or theirs is None:
            return f"row {place}: {'nothing' if ours is None else 'there'} by the log, answered {theirs}"
        for column in ours:
            if ours[column] != theirs[column]:
                return f"row {place}, {column}: {ours[column]} by the log, {theirs[column]} answered"
    return "no difference"


def check_messages(corpus: Corpus) -> int:
    """Fails where a message of the transcoder, decoded by its schema, is not the change. How many there were."""
    tables = {id: replace(table, cdc=True) for id, table in corpus.tables.items()}
    schemas: dict[bytes, SchemaEntry] = {}
    for table in tables.values():
        encoder = Encoder(table, _PREFIX)
        schemas.update({key: entry_from_record(key, value) for key, value in schema_records(encoder, "topic")})
    transcoder, count = Transcoder(_PREFIX), 0
    for logged in corpus.mutations():
        mutation = decode_mutation(logged.payload, logged.version, tables.get)
        changes = changes_of(mutation, logged.source, lambda _: True)
        messages = transcoder.messages(
            logged.payload, logged.version, lambda id: tables.get(UUID(bytes=id)), logged.source
        )
        decoded = [published(decode(message.value, schemas)) for message in messages]
        assert decoded == [published(change) for change in changes]
        count += len(decoded)
    return count
