"""All rows of one table in the database, for `tailrace compare`: each state, and whether the view shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import sqlalchemy as sa

from tailrace_schemas.table import ColumnKind
from tailrace_spark.merge.state_keys import ROW, STATIC
from tailrace_spark.merge.stored_row import RowKey, decode_stored
from tailrace_spark.sinks.naming import CLUSTERING, KEY
from tailrace_spark.sinks.protocol import StoredVisible
from tailrace_spark.sinks.sql.layout import Target

_CHUNK: Final = 2_000


def stored_rows(connection: sa.Connection, target: Target) -> Iterator[StoredVisible]:
    """As ComparableSink says: states in the order of their keys, then rows without a state."""
    clustering = [target.rows.c[column.stored] for column in target.layout.of_kind(ColumnKind.CLUSTERING)]
    state, rows, static = target.state, target.rows, target.static
    seen_row = rows.c[KEY].is_not(None)
    joined = state.outerjoin(rows, sa.and_(rows.c[KEY] == state.c.key, rows.c[CLUSTERING] == state.c.clustering))
    seen_static: sa.ColumnElement[bool] = sa.false()
    if static is not None:
        joined = joined.outerjoin(static, sa.and_(static.c[KEY] == state.c.key, state.c.clustering == STATIC))
        seen_static = static.c[KEY].is_not(None)
    named = sa.or_(state.c.clustering >= ROW, state.c.clustering == STATIC)
    stored = (state.c.key, state.c.clustering, state.c.state, state.c.generation, state.c.stream_id)
    query = sa.select(*stored, seen_row, seen_static, *clustering).select_from(joined).where(named)
    query = query.order_by(state.c.key, state.c.clustering).limit(_CHUNK)
    chunk = connection.execute(query).all()
    while chunk:
        for key, clustering_key, encoded, generation, stream_id, row_seen, static_seen, *values in chunk:
            row_key = bytes(key), bytes(clustering_key)
            visible = bool(static_seen if row_key[1] == STATIC else row_seen)
            row_state = decode_stored(encoded, generation, stream_id).state
            yield StoredVisible(row_key, row_state, visible, tuple(values))
        further = sa.tuple_(state.c.key, state.c.clustering) > sa.tuple_(chunk[-1][0], chunk[-1][1])
        chunk = connection.execute(query.where(further)).all()
    yield from _without_state(connection, target, clustering)


def _without_state(
    connection: sa.Connection, target: Target, clustering: list[sa.Column[object]]
) -> Iterator[StoredVisible]:
    """Rows that somebody else has put there."""
    state, rows, static = target.state, target.rows, target.static
    with_state = sa.exists().where(state.c.key == rows.c[KEY], state.c.clustering == rows.c[CLUSTERING])
    for key, clustering_key, *values in connection.execute(
        sa.select(rows.c[KEY], rows.c[CLUSTERING], *clustering).where(~with_state)
    ):
        row_key: RowKey = bytes(key), bytes(clustering_key)
        yield StoredVisible(row_key, None, True, tuple(values))
    if static is not None:
        with_state = sa.exists().where(state.c.key == static.c[KEY], state.c.clustering == STATIC)
        for (key,) in connection.execute(sa.select(static.c[KEY]).where(~with_state)):
            yield StoredVisible((bytes(key), STATIC), None, True, ())
