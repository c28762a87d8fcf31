"""What writing the changes of a table needs, worked out once: per column, and per list of columns in a header."""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64

from tailrace_schemas.forms import ValueForms
from tailrace_schemas.table import Column, Table
from tailrace_schemas.transcode.values import ValueWriter, writer_of

SIMPLE: Final = 0
LIST: Final = 1
SET: Final = 2
MAP: Final = 3
UDT: Final = 4

_KINDS: Final = {"list": LIST, "set": SET, "map": MAP, "udt": UDT}


class ColumnPlan:
    """One column of a header. `name` is its digest field, `text` its name as an Avro string.

    `live` says whether the record has it, `form` is SIMPLE or the kind of multi-cell column.
    """

    def __init__(self, column: Column, live: bool, forms: ValueForms) -> None:
        cql_type = column.type
        self.column = column
        self.live = live
        self.name = len(column.name_bytes).to_bytes(4, "big") + column.name_bytes
        self.text = column.name.encode()
        self.form = _KINDS[cql_type.kind] if cql_type.multicell else SIMPLE
        self.value: ValueWriter = writer_of(cql_type, forms)
        self.key: ValueWriter = self.value
        self.fields: list[ValueWriter] = []
        self.field_texts: list[bytes] = []
        if self.form == UDT:
            self.fields = [writer_of(arg, forms) for arg in cql_type.args]
            self.field_texts = [name.encode() for name in cql_type.fields]
        elif self.form != SIMPLE:
            self.key = writer_of(cql_type.args[0], forms)
            self.value = writer_of(cql_type.args[-1], forms)


class RowPlan:
    """The columns of one header, in wire order.

    `fields[i]` is the index among them of the table's i-th column or -1, `by_name` has their indices in the order of
    the digest. `ranks[i]` is the i-th one's place in that. Cassandra's order is another one where names are not ASCII.
    """

    def __init__(self, table: Table, columns: tuple[Column, ...], forms: ValueForms) -> None:
        live = {column.name_bytes for column in table.columns}
        indices = {column.name_bytes: index for index, column in enumerate(columns)}
        self.columns = [ColumnPlan(column, column.name_bytes in live, forms) for column in columns]
        self.fields = vec[i64]([indices.get(column.name_bytes, -1) for column in table.columns])
        self.by_name = vec[i64](sorted(range(len(columns)), key=lambda index: columns[index].name_bytes))
        self.ranks = vec[i64](sorted(range(len(columns)), key=lambda index: self.by_name[index]))
