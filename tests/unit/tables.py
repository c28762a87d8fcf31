"""Tables for tests, from CQL-like column lists."""

from __future__ import annotations

from uuid import UUID

from tailrace_schemas.cql.types import UserTypeDefinition, parse_type
from tailrace_schemas.table import Column, ColumnKind, DroppedColumn, Table

TABLE_ID = UUID("2be43760-e57f-11f1-8599-73518cff440e")
ADDRESS = UserTypeDefinition("addr", ("street", "zip", "tags"), ("text", "int", "frozen<set<text>>"))


def column(name: str, text: str, kind: ColumnKind, position: int = -1, descending: bool = False) -> Column:
    """One column; user type `addr` is known."""
    return Column(name, name.encode(), kind, parse_type(text, {"addr": ADDRESS}), position, descending)


def table(
    partition: dict[str, str],
    clustering: dict[str, str] | None = None,
    static: dict[str, str] | None = None,
    regular: dict[str, str] | None = None,
    *,
    dropped: dict[str, tuple[str, int]] | None = None,
    name: str = "t",
    keyspace: str = "ks",
    table_id: UUID = TABLE_ID,
) -> Table:
    """A table from {name: type} per kind; a clustering type may end in ' desc'; dropped is {name: (type, micros)}."""

    def of(columns: dict[str, str] | None, kind: ColumnKind) -> tuple[Column, ...]:
        made = [
            column(c, text.removesuffix(" desc"), kind, i, text.endswith(" desc"))
            for i, (c, text) in enumerate((columns or {}).items())
        ]
        keyed = kind in (ColumnKind.PARTITION_KEY, ColumnKind.CLUSTERING)
        if keyed:
            return tuple(made)
        plain = [Column(c.name, c.name_bytes, c.kind, c.type) for c in made]
        return tuple(sorted(plain, key=lambda c: c.name_bytes))

    return Table(
        keyspace=keyspace,
        name=name,
        id=table_id,
        partition_key=of(partition, ColumnKind.PARTITION_KEY),
        clustering=of(clustering, ColumnKind.CLUSTERING),
        static=of(static, ColumnKind.STATIC),
        regular=of(regular, ColumnKind.REGULAR),
        dropped=tuple(
            DroppedColumn(column(c, text, ColumnKind.REGULAR), at) for c, (text, at) in (dropped or {}).items()
        ),
        cdc=True,
    )
