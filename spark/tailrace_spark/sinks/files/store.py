"""A directory, local or on S3, through pyarrow's file systems: files that stand there whole, put by one attempt.

What stands behind that is in no file, so a batch that begins there need not look for files of an earlier attempt.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final
from uuid import uuid4

from pyarrow import fs

from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.formats import require_format
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import by_partition, by_topic
from tailrace_spark.sinks.files.settings import FilesSinkSettings
from tailrace_spark.sinks.lake.staging import require_writable
from tailrace_spark.sinks.table_faults import TableRefusedError, is_of_a_name

_S3: Final = "s3://"
_WRITING: Final = "_tailrace/writing"
_CLAIM: Final = "claim"
FORMAT: Final = 1
_PATH: Final = "_tailrace/reach.json"


class GoneError(ServiceError):
    """A file is not there any more."""


class TakenError(SettingsError):
    """Another writer has begun below the root since."""


class FileStore:
    """Files below a root, by their paths from there. Raises ServiceError where the file system does not answer.

    A writer stages files in the directory of its attempt. From there they are moved into place whole, in one step. Who
    takes that directory away can be sure that its owner places and removes nothing any more.
    """

    def __init__(self, filesystem: Any, root: str, *, local: bool) -> None:
        self._filesystem = filesystem
        self._root = root.rstrip("/")
        self.local = local

    @classmethod
    def of(cls, settings: FilesSinkSettings) -> FileStore:
        """The store that a section names. Raises SettingsError for a path of another kind."""
        if settings.path.startswith(_S3):
            return cls(_s3(settings), settings.path.removeprefix(_S3), local=False)
        if "://" in settings.path:
            raise SettingsError(f"a files sink's path is a directory or begins with {_S3}, unlike {settings.path}")
        return cls(fs.LocalFileSystem(), os.path.abspath(settings.path), local=True)

    def begin(self, attempt: str) -> None:
        """Make an attempt's directory, beside those of others."""
        self.write(f"{_WRITING}/{attempt}/{_CLAIM}", b"1")

    def end_others(self, attempt: str) -> None:
        """Take away the directories of all other attempts."""
        for info in self._listed(_WRITING):
            if not info.is_file and info.base_name != attempt:
                self.take_away(info.base_name)

    def take_away(self, attempt: str) -> None:
        """Remove an attempt's directory: its owner places and removes nothing from then on."""
        directory = f"{_WRITING}/{attempt}"
        with answering(directory), suppress(FileNotFoundError):
            if self.local and not attempt.startswith("."):
                directory = f"{_WRITING}/.{attempt}"
                self._filesystem.move(self._whole(f"{_WRITING}/{attempt}"), self._whole(directory))
            elif not self.local:
                # Its owner looks for it behind each upload: what is uploaded later than this is never placed.
                with suppress(FileNotFoundError):
                    self._filesystem.delete_file(self._whole(f"{directory}/{_CLAIM}"))
            self._filesystem.delete_dir(self._whole(directory))

    def holds(self, attempt: str) -> bool:
        """Whether an attempt's directory is there, and nobody has taken it away."""
        return self.exists(f"{_WRITING}/{attempt}/{_CLAIM}")

    def require(self, attempt: str) -> None:
        """Raises TakenError where an attempt's directory was taken away."""
        if not self.holds(attempt):
            raise TakenError("another stream has begun to write here: give each stream a path of its own")

    def stage(self, attempt: str) -> tuple[str, Any]:
        """The path of a new file of an attempt, which no reader sees, and a pyarrow stream that writes it."""
        path = f"{_WRITING}/{attempt}/{uuid4().hex}"
        with self._holding(attempt, path):  # no compression but ours
            return path, self._filesystem.open_output_stream(self._whole(path), compression=None)

    def make(self, directory: str) -> None:
        """Make a directory where files are to be placed. Raises TableRefusedError for a name that is too long."""
        if self.local:
            with answering(directory):
                self._filesystem.create_dir(self._whole(directory), recursive=True)

    def place(self, attempt: str, staged: str, path: str) -> None:
        """Give a staged file its path, in the stead of a file that has it. Raises TakenError."""
        with self._holding(attempt, path):
            if self.local:
                self.make(str(PurePosixPath(path).parent))
                _sync(self._whole(staged))
            self.require(attempt)
            self._filesystem.move(self._whole(staged), self._whole(path))
            self._sync_names(path)

    def remove(self, attempt: str, path: str) -> None:
        """Take a file away. Raises TakenError."""
        removed = f"{_WRITING}/{attempt}/{uuid4().hex}"
        with self._holding(attempt, path):
            self.require(attempt)
            self._filesystem.move(self._whole(path), self._whole(removed))
            self._filesystem.delete_file(self._whole(removed))

    @contextmanager
    def _holding(self, attempt: str, path: str) -> Iterator[None]:
        """What an attempt's directory is needed for: an error is its end where that was taken away."""
        with answering(path):
            try:
                yield
            except OSError:
                self.require(attempt)
                raise

    def write(self, path: str, content: bytes) -> None:
        """Write a file of ours in one step: whole, or not at all."""
        written = str(PurePosixPath(path).with_name(f".{PurePosixPath(path).name}")) if self.local else path
        self.make(str(PurePosixPath(path).parent))
        with answering(path):
            with self._filesystem.open_output_stream(self._whole(written), compression=None) as stream:
                stream.write(content)
            if self.local:
                _sync(self._whole(written))
                self._filesystem.move(self._whole(written), self._whole(path))
                self._sync_names(path)

    def exists(self, path: str) -> bool:
        """Whether there is a file of this name, and something in it.

        A stream to S3 that is let go of by an error before anything was written leaves an empty one.
        """
        with answering(path):
            return _is_written(self._filesystem.get_file_info(self._whole(path)))

    def below(self, directory: str) -> dict[str, tuple[int, int]]:
        """The paths of the files below a directory, each with its bytes and when it was written."""
        infos = self._listed(directory, recursive=True)
        return {
            info.path.removeprefix(f"{self._root}/"): (info.size, info.mtime_ns) for info in infos if _is_written(info)
        }

    def _listed(self, directory: str, *, recursive: bool = False) -> list[Any]:
        selector = fs.FileSelector(self._whole(directory), allow_not_found=True, recursive=recursive)
        with answering(directory):
            return list(self._filesystem.get_file_info(selector))

    def read(self, path: str) -> bytes:
        """A file's content. Raises GoneError where there is none."""
        with self.input(path) as file:
            content: bytes = file.read()
            return content

    @contextmanager
    def input(self, path: str) -> Iterator[Any]:
        """A pyarrow file to read from. Raises GoneError where there is none."""
        with answering(path), self._filesystem.open_input_file(self._whole(path)) as file:
            yield file

    def reach(self) -> None:
        """See that the directory may be written, or the bucket is there. Raises ServiceError."""
        if self.local:
            require_writable(self._root)
            return
        name = PurePosixPath(self._root).parts[0]
        with answering(self._root):
            bucket = self._filesystem.get_file_info(name)
        if bucket.type == fs.FileType.NotFound:
            raise ServiceError(f"there is no bucket {name}, or these credentials may not see it")

    def _sync_names(self, path: str) -> None:
        """See to it that the name of a local file, in directories that may be new, outlives a crash of the machine."""
        if self.local:
            for parent in PurePosixPath(path).parents:
                _sync(self._whole(str(parent)))

    def _whole(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root


def _is_written(info: Any) -> bool:
    return bool(info.is_file and info.size)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def answering(path: str) -> Iterator[None]:
    """What the file system raises, as ours; its messages have no credentials in them."""
    try:
        yield
    except FileNotFoundError as error:
        raise GoneError(f"{path}: {error}") from error
    except OSError as error:
        raise (TableRefusedError if is_of_a_name(error) else ServiceError)(f"{path}: {error}") from error


def _s3(settings: FilesSinkSettings) -> Any:
    scheme, separator, host = (settings.endpoint or "").partition("://")
    secret = settings.secret_key
    return fs.S3FileSystem(
        access_key=None if settings.access_key is None else settings.access_key.get_secret_value(),
        secret_key=None if secret is None else secret.get_secret_value(),
        region=settings.region,
        scheme=scheme if separator else "https",
        endpoint_override=host or settings.endpoint,
        tls_ca_file_path=None if settings.tls_ca_file is None else str(settings.tls_ca_file),
    )


@dataclass(frozen=True, slots=True)
class Reach:
    """Offsets behind the last change that a file may have."""

    ends: Mapping[KafkaPartition, int] = field(default_factory=dict)

    def with_ends(self, ends: Mapping[KafkaPartition, int]) -> Reach:
        """With those of other partitions, or later ones."""
        further = {partition: end for partition, end in ends.items() if end > self.ends.get(partition, 0)}
        return Reach({**self.ends, **further}) if further else self


def read_reach(store: FileStore) -> Reach:
    """That of a root. Raises SettingsError where another version wrote it."""
    if not store.exists(_PATH):
        return Reach()
    value = json.loads(store.read(_PATH))
    require_format(_PATH, value["format"], FORMAT)
    return Reach(by_partition(value["ends"]))


def write_reach(store: FileStore, attempt: str, reach: Reach) -> None:
    """Keep it, by an attempt that still holds. Raises TakenError: a later attempt's files may reach further."""
    staged, stream = store.stage(attempt)
    with answering(staged), stream:
        stream.write(json.dumps({"format": FORMAT, "ends": by_topic(reach.ends)}).encode())
    store.place(attempt, staged, _PATH)
