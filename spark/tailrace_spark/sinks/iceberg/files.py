"""Files of Iceberg tables: rows read and written, and what a commit changes of files and columns.

What is written is no part of its table until a commit names it, so any process may write, and one commits. Rows go to
and from Parquet as they are. For pyiceberg's own conversion makes an empty list of a null one where its elements are
structs. The issue of apache/iceberg-python: "Null list<struct<...>> is written and read as an empty list".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    In,
    LessThanOrEqual,
    NotEqualTo,
)
from pyiceberg.io import FileIO
from pyiceberg.io.fileformat import FileFormatFactory
from pyiceberg.io.pyarrow import ArrowScan, bin_pack_arrow_table, schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.table import FileScanTask, Table, Transaction
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.utils.concurrent import ExecutorFactory

from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.sinks.arrow.types import conform, grown
from tailrace_spark.sinks.lake.store import Condition, not_among, plain_type

_COMPARE: Final[dict[str, Any]] = {
    "=": EqualTo, "!=": NotEqualTo, "<=": LessThanOrEqual, ">": GreaterThan, "in": In,
}  # fmt: skip
_FIELD_ID: Final = b"PARQUET:field_id"


def expression(condition: Condition) -> BooleanExpression:
    """A condition as pyiceberg has it."""
    parts = [_COMPARE[operator](column, numbers) for column, operator, numbers in condition]
    return And(*parts) if len(parts) > 1 else parts[0]


def plain_schema(metadata: TableMetadata) -> Any:
    """The pyarrow Schema of a table, in plain types: see LakeTable."""
    columns = schema_to_pyarrow(metadata.schema(), include_field_ids=False)
    return pa.schema([pa.field(field.name, plain_type(field.type)) for field in columns])


def read_rows(table: Table, files: Iterable[FileScanTask] | None = None, columns: Sequence[str] | None = None) -> Any:
    """A pyarrow Table of all rows of some files, or of the table, of these columns or all, in plain types.

    Raises SettingsError for files that another program left, and that have to be compacted by it first.
    """
    read_schema = plain_schema(table.metadata)
    if columns is not None:
        read_schema = pa.schema([read_schema.field(column) for column in columns])
    parts = [_read_file(table, file, read_schema) for file in (table.scan().plan_files() if files is None else files)]
    return pa.concat_tables([read_schema.empty_table(), *parts])


def _read_file(table: Table, task: FileScanTask, target: Any) -> Any:
    if task.delete_files:
        return _read_undeleted(table, task, target)
    with table.io.new_input(task.file.file_path).open() as stream:
        parquet = pq.ParquetFile(stream)
        stored = parquet.schema_arrow
        _require_same_columns(table, task, stored)
        rows = parquet.read([name for name in target.names if name in stored.names])
    plain = pa.schema([pa.field(field.name, plain_type(field.type)) for field in rows.schema])
    batches = rows.cast(plain).combine_chunks().to_batches()
    return pa.Table.from_batches([conform(batch, target) for batch in batches], target)


def _read_undeleted(table: Table, task: FileScanTask, target: Any) -> Any:
    """The rows of a file some of which are deleted by other files, as other engines write them."""
    if any(_has_lists_of_structs(field.type) for field in target):
        raise SettingsError(
            f"{'.'.join(table.name())} has delete files (merge-on-read) and lists of structs, which the sink cannot "
            "read together: compact it by the engine that wrote these (Spark: rewrite_data_files)"
        )
    schema = table.schema().select(*target.names)
    return ArrowScan(table.metadata, table.io, schema, AlwaysTrue()).to_table([task]).select(target.names).cast(target)


def _has_lists_of_structs(of: Any) -> bool:
    if pa.types.is_struct(of):
        return any(_has_lists_of_structs(field.type) for field in of)
    return pa.types.is_list(of) and (pa.types.is_struct(of.value_type) or _has_lists_of_structs(of.value_type))


def _require_same_columns(table: Table, task: FileScanTask, stored: Any) -> None:
    """Columns are looked up by name, and a table's columns are never renamed by a sink: but by somebody else."""
    for field in stored:
        field_id = (field.metadata or {}).get(_FIELD_ID)
        column = table.schema().find_column_name(int(field_id)) if field_id is not None else field.name
        if column not in (None, field.name):
            raise SettingsError(
                f"{task.file.file_path}: the column {field.name} is called {column} now: a sink's tables keep the "
                "names of their columns; rename it back"
            )


def without(table: Table, file: FileScanTask, named: Any) -> Any | None:
    """The rows of a file but those that `named` names: its columns are equal. None where the file has none of these."""
    names = read_rows(table, [file], named.schema.names)
    stays = not_among(names, named)
    return None if stays is None else read_rows(table, [file]).filter(stays)


def write_rows(metadata: TableMetadata, io: FileIO, rows: Any, file_bytes: int) -> list[DataFile]:
    """Write the rows of a pyarrow Table as data files of a table: by its partitions, of about this size in memory.

    Columns of the table that the rows do not have are null.
    """
    target = _with_field_ids(schema_to_pyarrow(metadata.schema()))
    parts = [
        (key, pa.Table.from_batches(batches))
        for key, some in _by_partition(metadata, rows)
        for batches in bin_pack_arrow_table(some, file_bytes)
    ]
    executor = ExecutorFactory.get_or_create()
    return list(executor.map(lambda part: _write_file(metadata, io, target, *part), parts))


def _write_file(metadata: TableMetadata, io: FileIO, target: Any, key: PartitionKey | None, rows: Any) -> DataFile:
    batches = rows.combine_chunks().to_batches()
    columns = pa.Table.from_batches([conform(_unsliced(batch), target) for batch in batches], target).columns
    locations = load_location_provider(metadata.location, metadata.properties)
    path = locations.new_data_location(f"{uuid4()}.parquet", key)
    output = io.new_output(path)
    with FileFormatFactory.get(FileFormat.PARQUET).create_writer(
        output, metadata.schema(), metadata.properties
    ) as writer:
        writer.write(pa.Table.from_arrays(columns, schema=target))
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record() if key is None else key.partition,
        file_size_in_bytes=len(output),
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **writer.result().to_serialized_dict(),
    )


def _unsliced(batch: Any) -> Any:
    """The batch without slices, which `conform` does not take."""
    return pa.RecordBatch.from_arrays([pa.concat_arrays([array]) for array in batch.columns], schema=batch.schema)


def _with_field_ids(schema: Any) -> Any:
    """A pyarrow Schema of pyiceberg's, with its fields' ids, in plain types."""
    return pa.schema([_plain_field(field) for field in schema])


def _plain_field(field: Any) -> Any:
    return field.with_type(_plain_with_ids(field.type))


def _plain_with_ids(of: Any) -> Any:
    if pa.types.is_struct(of):
        return pa.struct([_plain_field(field) for field in of])
    if pa.types.is_list(of) or pa.types.is_large_list(of):
        return pa.list_(_plain_field(of.value_field))
    return plain_type(of)


def _by_partition(metadata: TableMetadata, rows: Any) -> Iterator[tuple[PartitionKey | None, Any]]:
    """The rows of each partition that has some."""
    spec, schema = metadata.spec(), metadata.schema()
    if not len(rows):
        return
    if spec.is_unpartitioned():
        yield None, rows
        return
    [field, *more_fields] = spec.fields
    if more_fields or not isinstance(field.transform, IdentityTransform):
        raise SettingsError(f"{metadata.location}: its partitions are not those that the sink made: {spec}")
    values = rows[schema.find_column_name(field.source_id)]
    for value in pc.unique(values):
        key = PartitionKey([PartitionFieldValue(field, value.as_py())], spec, schema)
        yield key, rows.filter(pc.equal(values, value))


def data_files(table: Table, uri: str, paths: Sequence[str]) -> list[DataFile]:
    """The table's data files of these paths; `uri` names it. Raises ServiceError where it has one no more."""
    if not paths:
        return []
    existing = {task.file.file_path: task.file for task in table.scan().plan_files()}
    if missing := [path for path in paths if path not in existing]:
        raise ServiceError(f"{uri}: another writer came first: {missing[0]} is not its any more")
    return [existing[path] for path in paths]


def change_files(transaction: Transaction, added: Sequence[DataFile], removed: Sequence[DataFile]) -> None:
    """Make one snapshot with files in place of others. The commit asks for the snapshot that was read."""
    changes = transaction.update_snapshot()
    snapshot = changes.overwrite() if removed else changes.merge_append()
    evaluator_of = snapshot._build_manifest_evaluator  # noqa: SLF001 - nothing else is there to mend it by
    # An evaluator keeps the manifest that it looks at, and pyiceberg would let several threads have one: it would then
    # miss a removed file. So each manifest has its own.
    snapshot._build_manifest_evaluator = lambda spec_id: lambda manifest: evaluator_of(spec_id)(manifest)  # type: ignore[method-assign]  # noqa: SLF001 - as above
    with snapshot:
        for file in removed:
            snapshot.delete_data_file(file)
        for file in added:
            snapshot.append_data_file(file)


def widen(transaction: Transaction, schema: Any, target: Any) -> None:
    """Add the columns, and fields of columns, that only `target` has."""
    wider = grown(schema, target)
    if wider is not None and wider != schema:
        with transaction.update_schema() as update:
            update.union_by_name(wider)


def replace_columns(transaction: Transaction, schema: Any, target: Any) -> None:
    """Have these columns alone, in this order; one of another type than before is another column."""
    replaced = [field.name for field in schema if field.name not in target.names or target.field(field.name) != field]
    if replaced:
        with transaction.update_schema(allow_incompatible_changes=True) as update:
            for name in replaced:
                update.delete_column((name,))
    stays = [name for name in schema.names if name not in replaced]
    if set(target.names) - set(stays):
        with transaction.update_schema() as update:
            update.union_by_name(target)
    if [field.name for field in transaction.table_metadata.schema().fields] != target.names:
        with transaction.update_schema() as update:
            update.move_first((target.names[0],))
            for previous, name in pairwise(target.names):
                update.move_after((name,), (previous,))
