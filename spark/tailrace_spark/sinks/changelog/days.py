"""The day of a change, by which files and tables are partitioned."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def day_of(written: int) -> str:
    """The day (UTC) of a write time in microseconds; of one beyond the years 1 to 9999, the first or last of these."""
    try:
        return (_EPOCH + timedelta(microseconds=written)).date().isoformat()
    except OverflowError:
        return (date.max if written > 0 else date.min).isoformat()
