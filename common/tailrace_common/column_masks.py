"""Columns that Cassandra masks: SELECT gives a role without UNMASK other values of them than are stored.

Dynamic data masking is of Cassandra 5.0 on. `system_schema.column_masks` has the masks. LIST UNMASK says who reads
through them: a role may list its own rights, and a superuser everybody's (CassandraAuthorizer.list).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from tailrace_schemas.cql.types import quote_identifier
from tailrace_schemas.errors import ServiceError

Rows = Callable[[str], Sequence[Sequence[object]]]
"""Runs a statement and gives the values of its rows. Raises ServiceError, with Cassandra's words where it refuses."""

_FIRST_MAJOR: Final = 5
ALL_MASKS: Final = "SELECT keyspace_name, table_name, column_name FROM system_schema.column_masks"
# AllowAllAuthorizer keeps no rights: everybody has all of them (ClientState.hasTablePermission), nobody's are listed.
_OPEN: Final = ("not anonymous", "not supported by AllowAllAuthorizer")
_OTHERS: Final = "not authorized to view everyone's permissions"
_UNTOLD: Final = ("not authorized to view", "doesn't exist", "not supported by")
_STILL_MASKED: Final = "no UNMASK nor SELECT_MASKED"


def can_mask(release: str) -> bool:
    """Whether nodes of a release, such as 5.0.9, mask columns."""
    return int(release.split(".")[0]) >= _FIRST_MAJOR


def masked_columns(rows: Rows, keyspace: str, table: str) -> tuple[str, ...]:
    """The masked columns of a table or view, whoever asks. Raises ServiceError."""
    condition = f"keyspace_name = {_literal(keyspace)} AND table_name = {_literal(table)}"
    return tuple([str(column) for _, _, column in rows(f"{ALL_MASKS} WHERE {condition}")])


def masked_words(rows: Rows, keyspace: str, table: str, columns: Collection[str], role: str | None) -> str | None:
    """Why these masked columns cannot be read, and what to do; None: `role` reads what is stored.

    `role` None: nobody knows as whom it connects. Raises ServiceError where Cassandra cannot say it now, or a node
    still goes by what it knew before a grant.
    """
    name = f"{quote_identifier(keyspace)}.{quote_identifier(table)}"
    untold = _masking(rows, name, role)
    if untold is None:
        _require_settled(rows, name, quote_identifier(next(iter(columns))))
        return None
    masked = ", ".join(f"{keyspace}.{table}.{column}" for column in columns)
    role_name = "ROLE" if role is None else quote_identifier(role)
    doubt = f", as far as can be told ({untold})" if untold else ""
    return (
        f"Cassandra masks {masked} for this role{doubt}: SELECT gives masked values of what is stored. "
        f"GRANT UNMASK ON TABLE {name} TO {role_name}; or take masked values for data: allow_masked_values = true"
    )


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _masking(rows: Rows, name: str, role: str | None) -> str | None:
    """None where the role has UNMASK on a table; why nobody can tell; empty where it has not."""
    try:
        if role is not None and rows(f"LIST UNMASK ON TABLE {name} OF {quote_identifier(role)}"):
            return None
        rows(f"LIST UNMASK ON TABLE {name}")
    except ServiceError as error:
        words = str(error)
        if any(sign in words for sign in _OPEN):
            return None
        if role is not None and _OTHERS in words:
            return ""
        if any(sign in words for sign in _UNTOLD):
            return words
        raise
    return None


def _require_settled(rows: Rows, name: str, column: str) -> None:
    """Raise ServiceError while a node keeps rights without UNMASK (`permissions_validity`), which LIST does not show.

    Before it looks at a condition it looks at the right to set one (SelectStatement.authorize). It takes no null there.
    """
    try:
        rows(f"SELECT {column} FROM {name} WHERE {column} = null ALLOW FILTERING")  # noqa: S608 - names are quoted
    except ServiceError as error:
        if _STILL_MASKED in str(error):
            words = f"a node masks {name} for this role still: it keeps rights for permissions_validity. Try again then"
            raise ServiceError(words) from error
