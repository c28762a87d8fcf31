"""The day of a change, by which files and tables are partitioned."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_MICROS: Final = 86_400_000_000


def day_of(written: int) -> str:
    """The day (UTC) of a write time in microseconds; of one beyond the years 1 to 9999, the first or last of these."""
    return _day(written // _DAY_MICROS)


@lru_cache(maxsize=1_000)
def _day(number: int) -> str:
    """The day of so many days since 1970: most changes of a batch are of one or two."""
    try:
        return (_EPOCH + timedelta(days=number)).date().isoformat()
    except OverflowError:
        return (date.max if number > 0 else date.min).isoformat()
