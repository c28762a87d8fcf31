"""Days and milliseconds since the epoch as ISO 8601 text, for every int64: datetime ends at year 9999.

The proleptic Gregorian calendar in integers, by Howard Hinnant's algorithm `civil_from_days`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

EPOCH_DAYS_MS: Final = 86_400_000
_ERA_DAYS: Final = 146_097  # 400 years
_TO_MARCH_OF_YEAR_0: Final = 719_468


def civil(days: int) -> tuple[int, int, int]:
    """(year, month, day) of a day since 1970-01-01; astronomical years, so that 0 is 1 BC."""
    era, day_of_era = divmod(days + _TO_MARCH_OF_YEAR_0, _ERA_DAYS)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153  # months from March
    month = shifted + 3 if shifted < 10 else shifted - 9
    year = year_of_era + era * 400 + (month <= 2)
    return year, month, day_of_year - (153 * shifted + 2) // 5 + 1


@lru_cache(maxsize=4096)
def year_of(days: int) -> int:
    """The astronomical year of a day since 1970-01-01."""
    return civil(days)[0]


@lru_cache(maxsize=4096)
def date_text(days: int) -> str:
    """2024-02-29; +10000-01-01 and -0001-12-31 beyond the years 0 to 9999, as ISO 8601 extends them."""
    year, month, day = civil(days)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"


def time_text(nanoseconds: int) -> str:
    """12:00:00.000000000, of nanoseconds since midnight."""
    seconds, fraction = divmod(nanoseconds, 1_000_000_000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:09d}"


def timestamp_text(milliseconds: int) -> str:
    """2024-02-29T12:00:00.000Z, of milliseconds since the epoch; years as `date_text` writes them."""
    days, rest = divmod(milliseconds, EPOCH_DAYS_MS)
    seconds, fraction = divmod(rest, 1000)
    time = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:03d}"
    return f"{date_text(days)}T{time}Z"
