"""A directory, local or on S3, through pyarrow's file systems: what a files sink and its readers do with it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from typing import Any, Final

from pyarrow import fs

from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.sinks.files.settings import FilesSinkSettings
from tailrace_spark.sinks.table_faults import TableRefusedError, is_of_a_name

_S3: Final = "s3://"
_BLOCK: Final = 1 << 20


class GoneError(ServiceError):
    """A file is not there any more."""


class FileStore:
    """Files below a root, by their paths from there. Raises ServiceError where the file system does not answer.

    `renames`: a file can be given its name when it is whole, in one step, as on local disks and not on S3. Until then
    its name begins with a dot, which readers of directories (Spark, DuckDB, pyarrow) pass over.
    """

    def __init__(self, filesystem: Any, root: str, *, renames: bool) -> None:
        self._filesystem = filesystem
        self._root = root.rstrip("/")
        self.renames = renames

    @classmethod
    def of(cls, settings: FilesSinkSettings) -> FileStore:
        """The store that a section names. Raises SettingsError for a path of another kind."""
        if settings.path.startswith(_S3):
            return cls(_s3(settings), settings.path.removeprefix(_S3), renames=False)
        if "://" in settings.path:
            raise SettingsError(f"a files sink's path is a directory or begins with {_S3}, unlike {settings.path}")
        return cls(fs.LocalFileSystem(), os.path.abspath(settings.path), renames=True)

    def open(self, path: str) -> Any:
        """A pyarrow stream that writes a file, in a directory that is made if need be; visible when it is closed."""
        full_path = self._whole(path)
        with answering(full_path):
            if self.renames:
                self._filesystem.create_dir(str(PurePosixPath(full_path).parent), recursive=True)
            return self._filesystem.open_output_stream(full_path, compression=None)  # ours, not what a name says

    def write(self, path: str, content: bytes) -> None:
        """Write a file in one step: whole, or not at all."""
        first = hidden(path) if self.renames else path
        stream = self.open(first)
        with answering(path):
            stream.write(content)
            stream.close()
        self.settle(first)
        if self.renames:
            self.rename(path)

    def create(self, path: str, content: bytes, writer: str) -> bool:
        """As `write`, where there is none of this name yet; else False, and nothing is written.

        Of two that create one at a time one gets False on a local disk; S3 is looked at before. `writer` names who
        writes, and no other.
        """
        if not self.renames:
            if self.exists(path):
                return False
            self.write(path, content)
            return True
        first = f"{hidden(path)}.{writer}"
        stream = self.open(first)
        with answering(path):
            stream.write(content)
            stream.close()
        self.settle(first)
        full_path = self._whole(path)
        with answering(path):
            try:
                os.link(self._whole(first), full_path)
            except FileExistsError:
                return False
            finally:
                os.unlink(self._whole(first))
            _sync(str(PurePosixPath(full_path).parent))
        return True

    def join(self, path: str, parts: Sequence[str]) -> None:
        """Have the content of several files in one, in this order, and take them away."""
        first = hidden(path) if self.renames else path
        stream = self.open(first)
        for part_path in parts:
            with self.input(part_path) as file, answering(path):
                while block := file.read(_BLOCK):
                    stream.write(block)
        with answering(path):
            stream.close()
        self.settle(first)
        if self.renames:
            self.rename(path)
        for part_path in parts:
            self.remove(part_path)

    @property
    def directory(self) -> str | None:
        """The directory on local disks that the files are below; None: all machines reach them."""
        return self._root if self.renames else None

    def settle(self, path: str) -> None:
        """See to it that a local file, and its name, outlive a crash of the machine."""
        if self.renames:
            _sync(self._whole(path))
            _sync(str(PurePosixPath(self._whole(path)).parent))

    def rename(self, path: str) -> None:
        """Give a hidden file its name; nothing where it has it."""
        with answering(path):
            if self._exists(hidden(path)):
                self._filesystem.move(self._whole(hidden(path)), self._whole(path))
                _sync(str(PurePosixPath(self._whole(path)).parent))

    def hide(self, path: str) -> None:
        """Give a file its hidden name, where files have one; nothing where it is not there by the other."""
        with answering(path):
            if self.renames and self._exists(path):
                self._filesystem.move(self._whole(path), self._whole(hidden(path)))

    def remove(self, path: str) -> None:
        """Take a file away, hidden or not; nothing where there is none."""
        with answering(path):
            for candidate in (path, hidden(path)) if self.renames else (path,):
                if self._filesystem.get_file_info(self._whole(candidate)).is_file:
                    self._filesystem.delete_file(self._whole(candidate))

    def exists(self, path: str) -> bool:
        """Whether there is a file of this name, and something in it.

        A stream to S3 that is let go of by an error before anything was written leaves an empty one.
        """
        with answering(path):
            return self._exists(path)

    def _exists(self, path: str) -> bool:
        return _is_written(self._filesystem.get_file_info(self._whole(path)))

    def size(self, path: str) -> int:
        """Bytes of a file. Raises GoneError where there is none."""
        with answering(path):
            info = self._filesystem.get_file_info(self._whole(path))
        if not info.is_file:
            raise GoneError(f"{path}: there is no such file any more")
        return int(info.size)

    def names(self, directory: str) -> list[str]:
        """Names of the files in a directory, sorted, hidden and empty ones left out; none where it does not exist."""
        with answering(directory):
            infos = self._filesystem.get_file_info(fs.FileSelector(self._whole(directory), allow_not_found=True))
        return sorted(info.base_name for info in infos if _is_written(info) and not info.base_name.startswith("."))

    def below(self) -> Iterator[tuple[str, float]]:
        """The paths of all files, hidden ones by their own names, and when each was written: seconds since 1970."""
        with answering(self._root):
            infos = self._filesystem.get_file_info(fs.FileSelector(self._root, recursive=True, allow_not_found=True))
        for info in infos:
            if info.is_file:
                yield info.path.removeprefix(f"{self._root}/"), info.mtime_ns / 1e9

    def read(self, path: str) -> bytes:
        """A file's content."""
        with self.input(path) as file:
            content: bytes = file.read()
            return content

    @contextmanager
    def input(self, path: str) -> Iterator[Any]:
        """A pyarrow file to read from, hidden or not; also while another process shows it."""
        with answering(path), self._opened(path) as file:
            yield file

    def _opened(self, path: str) -> Any:
        if self.renames:
            for name in (path, hidden(path)):
                with suppress(FileNotFoundError):
                    return self._filesystem.open_input_file(self._whole(name))
        return self._filesystem.open_input_file(self._whole(path))

    def reach(self) -> None:
        """See that the directory may be written, or the bucket is there. Raises ServiceError."""
        root = PurePosixPath(self._root)
        if self.renames:
            nearest = next(directory for directory in (root, *root.parents) if os.path.exists(directory))
            if not (os.path.isdir(nearest) and os.access(nearest, os.W_OK)):
                raise ServiceError(f"{nearest} is no directory that this user may write")
            return
        with answering(self._root):
            bucket = self._filesystem.get_file_info(root.parts[0])
        if bucket.type == fs.FileType.NotFound:
            raise ServiceError(f"there is no bucket {root.parts[0]}, or these credentials may not see it")

    def _whole(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root


def hidden(path: str) -> str:
    """The name of a file that is not committed yet, in the same directory."""
    file = PurePosixPath(path)
    return str(file.with_name(f".{file.name}"))


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
