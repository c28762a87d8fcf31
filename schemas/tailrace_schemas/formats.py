"""The number of a record's form: every record that outlives a process has one, which readers look at first."""

from __future__ import annotations

from collections.abc import Callable

from tailrace_schemas.errors import SettingsError


def require_format(
    record: str,
    number: object,
    supported: int,
    *,
    otherwise: str = "",
    error: Callable[[str], Exception] = SettingsError,
) -> None:
    """Raises `error` for another form than the `supported` one, be it later, earlier or no number.

    `record` names the record and where it is, as a sentence begins. `otherwise` is what the sentence's end offers
    besides the version that wrote it.
    """
    if number != supported:
        raise error(
            f"{record} was written by another version of Tailrace (format {number}; this one reads {supported}). "
            f"Install that version{otherwise}"
        )
