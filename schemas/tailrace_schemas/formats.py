"""The number of a record's form: every record that outlives a process has one, which readers look at first."""

from __future__ import annotations

from typing import Final

from tailrace_schemas.errors import SettingsError

FIRST: Final = 1
"""The form of records without a number: versions wrote them before there was one."""


def require_format(record: str, number: object, newest: int, *, otherwise: str = "") -> None:
    """Raises SettingsError for a later form than `newest`, or what is no number.

    `record` names the record and where it is, as the beginning of a sentence; `otherwise` is what its end offers
    besides the newer version.
    """
    if not isinstance(number, int) or number > newest:
        raise SettingsError(
            f"{record} was written by a newer Tailrace (format {number}; this one reads up to {newest}). "
            f"Install that version{otherwise}"
        )
