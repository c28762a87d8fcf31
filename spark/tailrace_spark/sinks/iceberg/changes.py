"""What a commit of an Iceberg table changes: its files, and its columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction

from tailrace_schemas.errors import ServiceError
from tailrace_spark.sinks.arrow.types import grown


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
