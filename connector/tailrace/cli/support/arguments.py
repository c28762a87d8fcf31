"""What the text of an argument names: a time, a table's topic."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.errors import SettingsError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECONDS: Final = re.compile(r"-?\d{1,19}", re.ASCII)


def time_of(option: str, text: str | None) -> int | None:
    """A write time in microseconds, of ISO 8601 or digits. Raises SettingsError, which names the option."""
    if text is None:
        return None
    if _MICROSECONDS.fullmatch(text):
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise SettingsError(f"{option} {text}: a time is such as 2026-11-21T17:00:00Z, or microseconds") from None
    return ((when if when.tzinfo is not None else when.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)


def topic_of(entries: Iterable[SchemaEntry], table: str, prefix: str) -> str:
    """The topic of a table by the last schema announced for its name. Raises SettingsError where there is none."""
    topics = {str(entry.table): entry.topic for entry in sorted(entries, key=lambda entry: entry.announced)}
    if table in topics:
        return topics[table]
    nearest = difflib.get_close_matches(table, topics, n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else f"there are: {', '.join(sorted(topics)) or 'none'}"
    raise SettingsError(f"{table}: no agent publishes such a table under the prefix {prefix}; {hint}")
