"""What sinks of tables in a lake need of whatever writes these: a root, tables below it, commits of all or nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tailrace_schemas.formats import require_format

FORMAT: Final = 1
"""Of every table: what its rows and what it notes mean. A table without a number is of a version that noted none: 1."""

_FORMAT: Final = "tailrace/format"
"""The application id under which a table notes its format when it is made."""

_ROW: Final = "__row"


Condition = Sequence[tuple[str, str, int | list[int]]]
"""Columns of whole numbers with an operator and a number, in the form of pyarrow's filters: all of them hold.

The operators are =, !=, <=, > and, with a list, in.
"""


class LakeTable(Protocol):
    """One table as it was when it was opened."""

    @property
    def schema(self) -> Any:
        """Its pyarrow Schema, in plain types: no large or view strings, lists whose elements are `item`."""

    def read(self, columns: Sequence[str], condition: Condition, keys: Collection[bytes] | None = None) -> Any:
        """A pyarrow Table of these columns of the rows for which a condition holds, in no order.

        With `keys`, those of them whose first column, binary, is one of these. Raises ServiceError.
        """

    def version_of(self, application: str) -> int | None:
        """What was last noted for an application id; None: nothing."""

    @property
    def identity(self) -> str:
        """Names the table itself: one that is made again under its name has another."""

    @property
    def says(self) -> str:
        """What describes it, as it was made; empty where nothing does."""


class LakeStore(Protocol):
    """The tables below one root. Everything raises ServiceError where the store does not answer.

    What is written is one commit, which also notes a version for each application id. `table` is as `open` gave it.
    Where another writer noted a version of one of these ids since, or made the table, nothing is written, and
    ServiceError is raised.
    """

    def reach(self) -> None:
        """See that the root may be written."""

    def open(self, name: str) -> LakeTable | None:
        """The table of a name, as it is now; None where there is none.

        Raises SettingsError for one of another version.
        """

    def names(self) -> list[str]:
        """The names below the root, sorted: tables, and perhaps more that `open` knows nothing of."""

    def uri(self, name: str) -> str:
        """Where the table of a name is, for people."""

    @property
    def directory(self) -> str | None:
        """The directory on local disks that the tables are below; None: all machines reach them."""

    def typed(self, schema: Any) -> Any:
        """A pyarrow Schema in the types that tables have here."""

    def make(self, name: str, batches: Any, versions: Mapping[str, int], *, partitioned_by: str, says: str) -> None:
        """Make a table that is not there, of a pyarrow RecordBatchReader's rows and columns; `says` describes it."""

    def widen(self, name: str, table: Any, schema: Any) -> None:
        """Add the columns, and fields of columns, that a pyarrow Schema has and the table has not."""

    def rewrite(self, name: str, table: Any, batches: Any, versions: Mapping[str, int]) -> None:
        """Put the rows and columns of a RecordBatchReader in place of all that are there."""

    def stage(self, name: str, table: Any, batches: Any, *, here: bool = False) -> Sequence[Any]:
        """Write rows as files that no commit names yet: whoever reads the table does not see them.

        Any process may do so, by a copy of the store: it can be pickled, and so can the files. `batches` is a pyarrow
        RecordBatchReader of columns of the table. `here`: the process that stages also commits, and may keep rows for
        that. Else HereOnlyError is raised for a table whose rows are checked as a commit writes them.
        """

    def stage_merge(
        self, name: str, table: Any, rows: Any, named_by: Sequence[str], *, here: bool = False
    ) -> tuple[Sequence[Any], Sequence[str]]:
        """As `stage`, of rows to be put in place, or where they are not there, added: also the files to be replaced.

        `rows` is a pyarrow Table of the table's columns and of `gone`: true for rows that are to be taken away.
        `named_by` are the columns that name a row, the one that the table is partitioned by first, of whole numbers.
        Only files of the values that `rows` has in that column are read.
        """

    def commit_staged(
        self, name: str, table: Any, files: Sequence[Any], versions: Mapping[str, int], replaced: Sequence[str] = ()
    ) -> None:
        """Add the rows of staged files, in place of the files that are named as `replaced`.

        Raises SettingsError where the files are not to be seen here, ServiceError where a replaced one is not the
        table's any more.
        """


def with_format(versions: Mapping[str, int]) -> Mapping[str, int]:
    """What a new table notes: its format, and these."""
    return {**versions, _FORMAT: FORMAT}


def require_readable(uri: str, table: LakeTable) -> None:
    """Raises SettingsError for a table of another version; `uri` is for people."""
    require_format(uri, table.version_of(_FORMAT), FORMAT)


def plain_type(of: Any) -> Any:
    """A pyarrow type as `LakeTable.schema` has it."""
    if pa.types.is_struct(of):
        return pa.struct([pa.field(field.name, plain_type(field.type)) for field in of])
    if pa.types.is_list(of) or pa.types.is_large_list(of) or pa.types.is_list_view(of):
        return pa.list_(plain_type(of.value_type))
    if pa.types.is_large_string(of) or pa.types.is_string_view(of):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(of) or pa.types.is_binary_view(of) else of


def not_among(names: Any, named: Any) -> Any | None:
    """For each row of a pyarrow Table whether another, of the same columns, does not have it; None: it has none."""
    numbers = pa.array(range(len(names)), pa.int64())
    joined = names.append_column(_ROW, numbers).join(named, named.schema.names, join_type="left semi")
    if not len(joined):
        return None
    return pc.invert(pc.is_in(numbers, joined[_ROW].combine_chunks()))


def rows_of_keys(tables: Sequence[Any], keys: Any | None) -> Any:
    """The rows of several tables as one; those whose first column is one of these keys, None: all of them."""
    rows = pa.concat_tables(tables)
    return rows if keys is None else rows.filter(pc.is_in(rows.column(0), keys))
