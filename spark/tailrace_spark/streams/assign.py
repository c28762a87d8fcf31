"""Stream ids, generations and marks for a DataFrame of changes: Arrow batches and numpy, no Python per row."""

from __future__ import annotations

import gc
import logging
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final
from zipimport import zipimporter

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from tailrace_common.backoff import Waits, repeated
from tailrace_common.properties.passthrough import Scalar
from tailrace_common.topics import GenerationReader
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.topics import Internal, internal_topic, table_of_topic
from tailrace_spark.streams.lookup import MARKS, Int64s, StreamTable, UnpackedGenerations

log = logging.getLogger("tailrace_spark")

LATENESS_SECONDS: Final = 3 * 3600 + 600
"""Cassandra's hint window and ten minutes: what is published later than that after its write is marked `late`."""
# In milliseconds: writers choose write times, so products and differences of them may overflow. That wraps in numpy,
# and ends the query in Spark's ANSI mode.
LATE_SQL: Final = f"written div 1000 < published - {LATENESS_SECONDS * 1000}"
"""Of the columns of `with_head`: whether a change gets that mark."""
LATE: Final = "late"
UNDECODABLE: Final = "undecodable"

COLUMNS: Final = (
    "op string, token bigint, written bigint, ttl int, expires bigint, digest binary, keyspace string, `table` string, "
    "topic string, partition int, offset bigint, schema_id binary, value binary, stream_id binary, generation bigint, "
    "marks array<string>"
)
_KEPT: Final = ("op", "token", "written", "ttl", "expires", "digest")
_PLACE: Final = ("topic", "partition", "offset", "schema_id", "value")
_WAITS: Final = Waits(1.0, 1.0)
SNAPSHOT_MARK: Final = "@"
"""Behind it stands a snapshot's id, in the place of a topic: no topic of Kafka's has it in its name."""

Bools = npt.NDArray[np.bool_]
TableSource = Callable[[], StreamTable]
"""Called once at the start of each task."""


def assigned(
    heads: DataFrame, table: StreamTable | TableSource, prefix: str, lateness_seconds: int = LATENESS_SECONDS
) -> DataFrame:
    """The columns of COLUMNS, for a DataFrame of `tailrace_spark.source.kafka.with_head`.

    `table` is what the driver knows, or what each task asks for. Marks: those of tailrace_schemas.streams.Mark;
    `late`; `undecodable` for a record that is no change, whose head, stream and generation are null.
    """
    source = partial(_given, table) if isinstance(table, StreamTable) else table
    return heads.mapInArrow(partial(_assign, source, prefix, lateness_seconds * 1000), COLUMNS)


def assigned_here(heads: pa.Table, table: StreamTable, prefix: str) -> pa.Table:
    """As `assigned`, of a DataFrame's rows that are here in this process: some 50 ns a row, and no Python workers."""
    lateness_ms = LATENESS_SECONDS * 1000
    batches = [_assign_batch(table, prefix, lateness_ms, batch) for batch in heads.to_batches()]
    return pa.Table.from_batches(batches or [_assign_batch(table, prefix, lateness_ms, _empty(heads.schema))])


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def generations_of_task(config: Mapping[str, Scalar], prefix: str) -> TableSource:
    """The source for tasks: the generations topic, read to its end when a task starts (docs/contracts.md 5).

    The reader stays with the worker process, so that later tasks only read on. A task waits while no generation is
    valid or the end cannot be reached. It logs each reason once, on its executor, since a running task has no way to
    tell its query.
    """
    return partial(_read, dict(config), internal_topic(prefix, Internal.GENERATIONS))


def _given(table: StreamTable) -> StreamTable:
    return table


# Of this worker process, and with it what was read and unpacked.
_readers: dict[str, GenerationReader] = {}
_unpacked: defaultdict[str, UnpackedGenerations] = defaultdict(UnpackedGenerations)


def _read(config: dict[str, Scalar], topic: str) -> StreamTable:
    key = f"{config.get('bootstrap.servers')} {topic}"
    reader = _readers.get(key) or _readers.setdefault(key, GenerationReader.open(config, topic))
    logged = ""

    def again(error: Exception) -> bool:
        nonlocal logged
        if isinstance(error, ServiceError) and str(error) != logged:  # a task may wait for hours
            log.warning("waiting for generations: %s", error)
            logged = str(error)
        return isinstance(error, ServiceError)

    return repeated(lambda: _unpacked[key].table(reader.refresh_some(), reader.known_until), _WAITS, again)


def _assign(
    source: TableSource, prefix: str, lateness_ms: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    begin_task()
    table: StreamTable | None = None
    for batch in batches:
        if table is None:
            table = source()
        yield _assign_batch(table, prefix, lateness_ms, batch)


def _assign_batch(table: StreamTable, prefix: str, lateness_ms: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    decodable = batch.column("token").is_valid()
    tokens, written = (_int64s(batch.column(name)) for name in ("token", "written"))
    assignments = table.assign(tokens, written)
    undecodable = ~_bools(decodable)
    late = ~undecodable & (written // 1000 < _int64s(batch.column("published")) - lateness_ms)
    flags = [(assignments.marks == index) & ~undecodable for index in range(1, len(MARKS))]
    marks = _lists([*(str(mark) for mark in MARKS[1:]), LATE, UNDECODABLE], [*flags, late, undecodable])
    keyspaces, tables = _names(prefix, batch.column("topic"))
    columns = [
        *[batch.column(name) for name in _KEPT],
        keyspaces,
        tables,
        *[batch.column(name) for name in _PLACE],
        pc.if_else(decodable, assignments.stream_column(), pa.scalar(None, pa.binary())),
        pc.if_else(decodable, pa.array(assignments.generations), pa.scalar(None, pa.int64())),
        marks,
    ]
    names = [*_KEPT, "keyspace", "table", *_PLACE, "stream_id", "generation", "marks"]
    return pa.RecordBatch.from_arrays(columns, names=names)


def _int64s(column: pa.Array) -> Int64s:
    values: Int64s = column.fill_null(0).to_numpy(zero_copy_only=False)
    return values


def _bools(column: pa.Array) -> Bools:
    values: Bools = column.to_numpy(zero_copy_only=False)
    return values


def _lists(names: list[str], flags: list[Bools]) -> pa.Array:
    """A list of names per row: those whose flag is set there, in the order given."""
    table = np.stack(flags, axis=1)
    offsets = np.zeros(len(table) + 1, dtype=np.int32)
    np.cumsum(table.sum(axis=1), out=offsets[1:])
    values = pa.DictionaryArray.from_arrays(pa.array(np.nonzero(table)[1].astype(np.int8)), pa.array(names))
    return pa.ListArray.from_arrays(pa.array(offsets), values.cast(pa.string()))


def _names(prefix: str, topics: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Keyspace and table of each topic, worked out once per topic; null for a topic whose name was shortened."""
    encoded = topics.dictionary_encode()
    texts = [topic.partition(SNAPSHOT_MARK)[0] for topic in encoded.dictionary.to_pylist()]
    names = [table_of_topic(prefix, topic) or (None, None) for topic in texts]
    keyspaces, tables = (pa.array([pair[index] for pair in names], pa.string()) for index in (0, 1))
    return keyspaces.take(encoded.indices), tables.take(encoded.indices)


def begin_task() -> None:
    """Called first by all that runs in a worker.

    Forgets the importers of archives, which are made again where something is imported from them. PySpark invalidates
    the caches of all importers at the start of each task. Before Python 3.13 that makes an archive's importer read the
    archive's whole directory. A worker has a dozen of pyspark.zip: 0.1 s of each task (measured).

    Leaves what modules have made to itself. The collector of cycles would look through these 100,000 objects each time
    that a task has made many of its own.
    """
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[path]
    if not gc.get_freeze_count():
        gc.freeze()
