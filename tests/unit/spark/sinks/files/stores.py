"""Stores of files sinks for tests: a real directory, or a real S3, behind a file system that can die."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from tailrace_schemas.change import Change
from tailrace_schemas.change_json import ChangeForms, ChangeJson
from tailrace_schemas.cql.json_value import plain
from tailrace_schemas.table import Table
from tailrace_schemas.table_json import table_from_json
from tailrace_spark.batch.delivery import RecordId
from tailrace_spark.sinks.arrow.schema import PLACE, arrow_schema
from tailrace_spark.sinks.changelog.sink import ChangeLogSink
from tailrace_spark.sinks.files.formats import DEFINITION, json_records
from tailrace_spark.sinks.files.outlet import FILE_LIMITS, FilesOutlet, FilesSink
from tailrace_spark.sinks.files.settings import FilesSinkSettings
from tailrace_spark.sinks.files.store import FileStore
from tailrace_spark.sinks.protocol import Sink
from tests.support.letters import MemoryLetters
from tests.unit.spark.sinks.in_tasks import LogInTasks

_NEVER_CLOSED: Final[list[Any]] = []
"""Files that dead processes were writing: one that is forgotten is closed, and S3 then has an object of what it got.

So they are kept as long as their test runs."""


def close_abandoned() -> None:
    """Close what dead processes were writing, once their test is over, and while the store still answers.

    The interpreter closes the rest at its end, and waits for a store that is gone by then.
    """
    while _NEVER_CLOSED:
        with suppress(OSError, ValueError):
            _NEVER_CLOSED.pop().close()


class Dying(fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """Another file system until so many steps that write have been made; then each one fails, as after a kill.

    Opening, the first piece written (Parquet's ends are written in hundreds), closing, renaming, removing and making
    directories are a step each.
    """

    def __init__(self, real: Any, steps: int, *, revives: bool = False) -> None:
        """With `revives` one step fails alone, as of a store that does not answer for a moment."""
        self._real = real
        self._left = steps
        self._revives = revives

    def step(self, stream: Any = None) -> None:
        """One step more; `stream` is the real file that is written to, if there is one."""
        if self._left == 0:
            self._left -= self._revives
            if stream is not None:
                _NEVER_CLOSED.append(stream)
            raise OSError("the process is dead")
        self._left -= 1

    def open_output_stream(self, path: str, metadata: Mapping[str, str]) -> Any:
        self.step()
        return pa.PythonFile(
            _Stream(self._real.open_output_stream(path, compression=None, metadata=metadata), self), mode="w"
        )

    def move(self, src: str, dest: str) -> None:
        self.step()
        self._real.move(src, dest)

    def create_dir(self, path: str, recursive: bool) -> None:
        self.step()
        self._real.create_dir(path, recursive=recursive)

    def get_file_info(self, paths: Sequence[str]) -> Any:
        return self._real.get_file_info(paths)

    def get_file_info_selector(self, selector: Any) -> Any:
        return self._real.get_file_info(selector)

    def open_input_file(self, path: str) -> Any:
        return self._real.open_input_file(path)

    def open_input_stream(self, path: str) -> Any:
        return self._real.open_input_stream(path)

    def open_append_stream(self, path: str, metadata: Mapping[str, str]) -> Any:
        raise NotImplementedError

    def copy_file(self, src: str, dest: str) -> None:
        raise NotImplementedError

    def delete_dir(self, path: str) -> None:
        self.step()
        self._real.delete_dir(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool) -> None:
        raise NotImplementedError

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def delete_file(self, path: str) -> None:
        self.step()
        self._real.delete_file(path)

    def get_type_name(self) -> str:
        return "dying"

    def normalize_path(self, path: str) -> str:
        return path


class _Stream(io.RawIOBase):
    """What is written to a dying file system's file."""

    def __init__(self, real: Any, dying: Dying) -> None:
        super().__init__()
        self._real = real
        self._dying = dying
        self._untouched = True

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._real.tell())

    def write(self, data: Any) -> int:
        if self._untouched:
            self._untouched = False
            self._dying.step(self._real)
        self._real.write(data)
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._dying.step(self._real)
            self._real.close()


class Stored:
    """A root that a files sink writes, and what readers of its directories see."""

    exactly_once = True

    def __init__(self, settings: FilesSinkSettings, real: Any, root: str, *, local: bool) -> None:
        self.settings = settings
        self.limits = FILE_LIMITS
        self.letters = MemoryLetters()
        self._real = real
        self._root = root
        self._local = local
        self.store = FileStore(real, root, local=local)

    def open(self, dies_after: int | None = None, *, revives: bool = False) -> Sink:
        return ChangeLogSink(self.outlet(dies_after, revives=revives))

    def outlet(self, dies_after: int | None = None, *, revives: bool = False) -> FilesOutlet:
        """That of a sink."""
        return FilesOutlet(self.opened(dies_after, revives=revives), self.settings, self.limits, self.letters)

    def opened(self, dies_after: int | None = None, *, revives: bool = False) -> FileStore:
        """The store of another process."""
        if dies_after is None:
            return self.store
        filesystem = fs.PyFileSystem(Dying(self._real, dies_after, revives=revives))
        return FileStore(filesystem, self._root, local=self._local)

    def data(self) -> list[str]:
        """The paths of all files of tables."""
        return sorted(path for path in self.store.below("") if is_data(PurePosixPath(path)))

    def records(self) -> Sequence[Mapping[str, Any]]:
        """By topic, partition and offset."""
        records = [record for path in self.data() for record in self._read(path)[1]]
        return sorted(records, key=lambda record: (record["topic"], record["partition"], record["offset"]))

    def changes(self) -> list[tuple[RecordId, Change]]:
        """Those of Parquet files, which say their definitions, in the same order."""
        forms = ChangeForms()
        changes = []
        for table, records in map(self._read, self.data()):
            assert table is not None
            changes += [(RecordId.from_json(record), forms.of(table).read(record)) for record in records]
        return sorted(changes, key=lambda change: change[0].key)

    def _read(self, path: str) -> tuple[Table | None, list[dict[str, Any]]]:
        with self.store.input(path) as file:
            if not path.endswith(".parquet"):
                return None, list(json_records(file, path))
            opened = pq.ParquetFile(file)
            table = table_from_json(json.loads(opened.schema_arrow.metadata[DEFINITION]))
            return table, list(parquet_records(opened.read(), table))


def parquet_records(rows: Any, table: Table) -> Iterator[dict[str, Any]]:
    """The same objects as they would be in a file of JSON lines, out of the rows of a Parquet file."""
    form, names = ChangeJson(table), [name for name, _ in PLACE]
    for row in rows.cast(arrow_schema(table, times=False)).to_pylist():
        place = {name: row.pop(name) for name in names}
        value = form.write(form.change({"columns": {}, **row}))
        yield {"table": value.pop("table"), **{name: plain(item) for name, item in place.items()}, **value}


class StoredInTasks(Stored):
    """A root that tasks write."""

    def open(self, dies_after: int | None = None, *, revives: bool = False) -> Sink:
        return LogInTasks(FilesSink(self.outlet(dies_after, revives=revives)))


def local(root: Path, kind: type[Stored] = Stored, **more: object) -> Stored:
    """A directory as a sink of its own has it."""
    section = FilesSinkSettings.model_validate({"path": str(root), **more})
    return kind(section, fs.LocalFileSystem(), str(root), local=True)


def is_data(path: PurePath) -> bool:
    """Whether readers of directories take a file of this path below a root for data, a subscription's too."""
    return not any(part.startswith(("_", ".")) for part in path.parts)


def names(root: Path) -> list[str]:
    """Everything that a reader of directories takes for data."""
    files = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return sorted(str(path) for path in files if is_data(path))
