"""Small files beside Spark's checkpoint, on whatever file system that is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import SparkSession

from tailrace_common.properties.passthrough import Scalar
from tailrace_spark.jvm import hadoop_configuration, jvm_of

_WRITER: Final = "spark.sql.streaming.checkpointFileManagerClass"
_WRITERS: Final = "org.apache.spark.sql.execution.streaming.checkpointing"

_DEFAULT_FILES: Final = ("spark.hadoop.fs.defaultFS", "spark.hadoop.fs.default.name")
_HADOOPS: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")


class Folder(Protocol):
    """A folder and its files, by their names (LocalFiles, HadoopFiles)."""

    def read(self, name: str) -> str | None:
        """A file's text; None where there is none."""

    def write(self, name: str, text: str) -> None:
        """Make the folder where it is missing, and rewrite the file."""

    def delete(self, name: str) -> None:
        """Take the file away, if it is there."""

    def names(self) -> list[str]:
        """The files of the folder, in any order; none where there is no folder."""

    def remove(self, name: str) -> None:
        """Take a folder in it away, with all that is in there. Raises OSError."""


def files_in(spark: SparkSession, folder: str) -> Folder:
    """The files of a folder: a path, or a URL of Hadoop's. A path is where Hadoop's default file system is."""
    files = HadoopFiles(spark, folder)
    return LocalFiles(_local_path(folder)) if files.local else files


def local_files(folder: str, spark: Mapping[str, Scalar], environ: Mapping[str, str]) -> LocalFiles | None:
    """As `files_in`, without Spark: None for another file system than this machine's, also by Hadoop's settings.

    `spark` is [stream.spark].
    """
    scheme = urlsplit(folder).scheme
    if scheme == "file":
        return LocalFiles(_local_path(folder))
    elsewhere = any(name in spark for name in _DEFAULT_FILES) or any(name in environ for name in _HADOOPS)
    return None if scheme or elsewhere else LocalFiles(_local_path(folder))


def _local_path(folder: str) -> Path:
    """Of a path, in which Hadoop takes a percent sign for itself, or of a URL `file:`."""
    return Path(unquote(urlsplit(folder).path) if folder.startswith("file:") else folder)


def write_promptly(spark: SparkSession, files: Folder) -> None:
    """Have Spark write its own files beside ours, in a checkpoint on this machine, by fewer processes.

    Left to itself it asks Hadoop's FileContext, which starts `readlink` eight times for each file that it renames: some
    30 ms, twice a batch. FileSystem does the same steps without: a file and its checksum under other names, then
    both renamed, if there is none yet. Where somebody has set the class, it stays.
    """
    if isinstance(files, LocalFiles) and spark.version.startswith("4.1.") and spark.conf.get(_WRITER, None) is None:
        spark.conf.set(_WRITER, f"{_WRITERS}.FileSystemBasedCheckpointFileManager")


class LocalFiles:
    """In a folder of this machine: Hadoop would start a `chmod` for each file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def folder(self) -> Path:
        """Their folder."""
        return self._folder

    def read(self, name: str) -> str | None:
        """As Folder says."""
        try:
            return (self._folder / name).read_text("utf-8")
        except FileNotFoundError:
            return None

    def write(self, name: str, text: str) -> None:
        """Whole or not at all, and on disk when this returns."""
        self._folder.mkdir(parents=True, exist_ok=True)
        new = self._folder / f".{name}.new"
        with new.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._folder / name)
        (self._folder / f".{name}.crc").unlink(missing_ok=True)  # what Hadoop once wrote beside it is of another text

    def delete(self, name: str) -> None:
        """As Folder says."""
        (self._folder / name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """As Folder says."""
        return [file.name for file in self._folder.iterdir()] if self._folder.is_dir() else []

    def remove(self, name: str) -> None:
        """As Folder says."""
        shutil.rmtree(self._folder / name)


class HadoopFiles:
    """On a file system of Hadoop's."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        jvm = jvm_of(spark)
        self._path = jvm.org.apache.hadoop.fs.Path
        self._io = jvm.org.apache.commons.io.IOUtils
        self._files = self._path(folder).getFileSystem(hadoop_configuration(spark))
        self._folder = folder

    @property
    def local(self) -> bool:
        """Whether it is this machine's."""
        return bool(self._files.getUri().getScheme() == "file")

    def read(self, name: str) -> str | None:
        """As Folder says."""
        file = self._file(name)
        if not self._files.exists(file):
            return None
        stream = self._files.open(file)
        try:
            text: str = self._io.toString(stream, "UTF-8")
            return text
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """As Folder says."""
        stream = self._files.create(self._file(name), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def delete(self, name: str) -> None:
        """As Folder says."""
        self._files.delete(self._file(name), False)

    def names(self) -> list[str]:
        """As Folder says."""
        folder = self._path(self._folder)
        if not self._files.exists(folder):
            return []
        return [str(status.getPath().getName()) for status in self._files.listStatus(folder)]

    def remove(self, name: str) -> None:
        """As Folder says."""
        try:
            self._files.delete(self._file(name), True)
        except Py4JJavaError as error:
            raise OSError(f"{self._folder}/{name} cannot be removed: {error.java_exception}") from error

    def _file(self, name: str) -> Any:
        return self._path(f"{self._folder}/{name}")
