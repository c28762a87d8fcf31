"""The schema file that a command is given: JSON lines, compressed by gzip or not."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

from tailrace.cli.segment_files import GZIP
from tailrace_schemas.definitions import SchemaFile, read_schema_file
from tailrace_schemas.errors import SettingsError


def open_schema(path: Path) -> SchemaFile:
    """What the file defines. Raises SettingsError, which names the file, for what is no such file or cannot be read."""
    try:
        content = path.read_bytes()
        if content.startswith(GZIP):
            content = gzip.decompress(content)
        return read_schema_file(io.StringIO(content.decode()))
    except SettingsError as error:
        raise SettingsError(f"{path}: {str(error).removeprefix('schema file').lstrip(':, ')}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: not UTF-8 text") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise SettingsError(f"{path}: broken gzip: {error}") from None
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from None
