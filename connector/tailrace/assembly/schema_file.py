"""The schema file that a command is given (JSON lines, compressed by gzip or not), and tables by name."""

from __future__ import annotations

import difflib
import gzip
import io
import zlib
from collections.abc import Collection, Iterable
from contextlib import closing
from pathlib import Path
from uuid import UUID

from tailrace.assembly.schema_rows import chosen_rows, lines_of
from tailrace.assembly.services import contact_of
from tailrace.cluster import LiveCluster
from tailrace.segments.files import GZIP
from tailrace_common.cli.console import say
from tailrace_common.settings import Settings
from tailrace_schemas.definitions import SchemaFile, read_schema_file
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.system_tables import system_tables
from tailrace_schemas.table import Table


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


def definitions_of(schema: Path | None) -> tuple[tuple[Table, ...], str | None]:
    """Built-in definitions, then those of the file, which win; and the release line that wrote the file."""
    if schema is None:
        return system_tables(), None
    file = open_schema(schema)
    for problem in file.definitions.problems:
        say(f"{schema}: {problem}")
    return (*system_tables(), *file.definitions.tables), file.release


def selected(definitions: Iterable[Table], names: Collection[str]) -> frozenset[UUID]:
    """The ids of the named tables; raises SettingsError for a name that no definition has."""
    ids_by_name: dict[str, set[UUID]] = {}
    for definition in definitions:
        ids_by_name.setdefault(str(definition), set()).add(definition.id)
        ids_by_name.setdefault(f"{definition.keyspace}.*", set()).add(definition.id)
    unknown = next((name for name in names if name not in ids_by_name), None)
    if unknown is not None:
        nearest = difflib.get_close_matches(unknown, ids_by_name, n=1)
        advice = f"did you mean {nearest[0]}?" if nearest else "give its rows with --schema"
        raise SettingsError(f"--table {unknown}: no such table is defined; {advice}")
    return frozenset().union(*(ids_by_name[name] for name in names))


def definitions_of_cluster(settings: Settings) -> SchemaFile:
    """What `schema export` would write of the cluster, read as a schema file. Raises ServiceError, SettingsError."""
    return read_schema_file(lines_of_cluster(settings, ()))


def lines_of_cluster(settings: Settings, names: list[str] | tuple[()]) -> list[str]:
    """Rows of `system_schema`, of the named tables or of all, as `schema export` writes them. Raises ServiceError."""
    with closing(LiveCluster(contact_of(settings.cluster))) as cluster:
        rows = cluster.schema_rows()
    return list(lines_of(chosen_rows(rows, names), rows))
