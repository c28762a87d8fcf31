"""What Iceberg tables of a sink need from time to time: compaction, expiry of snapshots."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyarrow import fs
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table

from tailrace_schemas.errors import ServiceError
from tailrace_spark.sinks.iceberg.files import read_rows, write_rows
from tailrace_spark.sinks.iceberg.store import IcebergStore, IcebergTable

_UNREFERENCED_HOURS: Final = 24
"""A file that no snapshot has may be one that is being written; it is one that a crash left when it is older."""
_WRITTEN: Final = (".parquet", ".avro", ".metadata.json", ".puffin")


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Work on the tables of one store. Raises ServiceError where store or catalog does not answer."""

    store: IcebergStore
    clock: Callable[[], datetime] = _now

    def describe(self, name: str) -> dict[str, object]:
        """A table's snapshots, and its files and their bytes as of the newest."""
        table = self._opened(name).iceberg
        newest = table.current_snapshot()
        summary = {} if newest is None or newest.summary is None else newest.summary.additional_properties
        files = [int(summary.get(f"total-{kind}", 0)) for kind in ("data-files", "delete-files")]
        return {
            "table": name,
            "snapshots": len(table.snapshots()),
            "files": sum(files),
            "bytes": int(summary.get("total-files-size", 0)),
        }

    def compact(self, name: str) -> dict[str, object]:
        """Put a table's small files together, in one commit; how many were removed, and how many were added."""
        table = self._opened(name)
        with self.store.catalog.answering(self.store.uri(name)):
            added, removed = list[DataFile](), list[DataFile]()
            for files in _groups(table.iceberg, self.store.file_bytes):
                rows = read_rows(table.iceberg, files)
                added += write_rows(table.iceberg.metadata, table.iceberg.io, rows, self.store.file_bytes)
                removed += [task.file for task in files]
            if removed:
                self.store.commit_compacted(table, added, removed)
            return {"removed": len(removed), "added": len(added)}

    def expire(self, name: str, hours: int, *, dry_run: bool) -> dict[str, object]:
        """Forget snapshots that are older than so many hours, with the files that only they have.

        Also files that no snapshot has, of a day or more, as crashes leave them. With `dry_run`, only how many.
        """
        table = self._opened(name).copy()
        oldest_kept, orphaned = (
            self.clock() - timedelta(hours=age) for age in (hours, max(hours, _UNREFERENCED_HOURS))
        )
        with self.store.catalog.answering(self.store.uri(name)):
            newest = {ref.snapshot_id for ref in table.refs().values()}
            since = oldest_kept.timestamp() * 1000
            old = [
                snapshot
                for snapshot in table.snapshots()
                if snapshot.timestamp_ms < since and snapshot.snapshot_id not in newest
            ]
            referenced = _referenced(table)
            orphans = [path for path in _files_of(table, orphaned) if path not in referenced]
            if not dry_run:
                if old:
                    table.maintenance.expire_snapshots().by_ids([snapshot.snapshot_id for snapshot in old]).commit()
                files = _file_system(table)
                for path in (*orphans, *(referenced - _referenced(table))):
                    _delete(files, path)
            return {"snapshots": len(old), "orphans": len(orphans)}

    def _opened(self, name: str) -> IcebergTable:
        table = self.store.open(name)
        if table is None:
            raise ServiceError(f"{self.store.uri(name)} was dropped meanwhile")
        return table


def _groups(table: Table, file_bytes: int) -> Iterator[Sequence[FileScanTask]]:
    """Files of one partition that together make a file of about this size; two or more."""
    by_partition: dict[str, list[FileScanTask]] = defaultdict(list)
    for task in table.scan().plan_files():
        if task.file.file_size_in_bytes < file_bytes or task.delete_files:
            by_partition[repr((task.file.spec_id, task.file.partition))].append(task)
    for tasks in by_partition.values():
        group, size = list[FileScanTask](), 0
        for task in tasks:
            if group and size + task.file.file_size_in_bytes > file_bytes:
                if len(group) > 1:
                    yield group
                group, size = [], 0
            group.append(task)
            size += task.file.file_size_in_bytes
        if len(group) > 1:
            yield group


def _referenced(table: Table) -> set[str]:
    """The paths of all files that a table's metadata names, in any snapshot that is left."""
    metadata = table.metadata
    named = {table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    named |= {statistics.statistics_path for statistics in (*metadata.statistics, *metadata.partition_statistics)}
    manifests = {
        manifest.manifest_path: manifest for snapshot in metadata.snapshots for manifest in snapshot.manifests(table.io)
    }
    named |= {snapshot.manifest_list for snapshot in metadata.snapshots} | manifests.keys()
    for manifest in manifests.values():
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        named |= {entry.data_file.file_path for entry in entries}
    return {_path(location) for location in named}


def _files_of(table: Table, before: datetime) -> list[str]:
    """The paths of the files at a table's location that were written before a time."""
    selector = fs.FileSelector(_path(table.location()), allow_not_found=True, recursive=True)
    files = [info for info in _file_system(table).get_file_info(selector) if info.type == fs.FileType.File]
    return [info.path for info in files if info.path.endswith(_WRITTEN) and info.mtime < before]


def _file_system(table: Table) -> Any:
    if not isinstance(table.io, PyArrowFileIO):
        raise ServiceError(f"{'.'.join(table.name())}: its files can be listed by pyarrow's FileIO alone: {table.io!r}")
    scheme, authority, _ = PyArrowFileIO.parse_location(table.location())
    return table.io.fs_by_scheme(scheme, authority)


def _path(location: str) -> str:
    return PyArrowFileIO.parse_location(location)[2]


def _delete(files: Any, path: str) -> None:
    with suppress(FileNotFoundError):  # the catalog deletes old metadata files itself
        files.delete_file(path)
