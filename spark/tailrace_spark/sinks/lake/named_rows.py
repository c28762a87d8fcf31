"""Which rows of a file others name: by columns of which all are equal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_ROW: Final = "__row"


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
