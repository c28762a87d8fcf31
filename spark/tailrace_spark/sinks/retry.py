"""Requests over HTTP that are tried again while that may help, at a pace, and for no longer than a section says."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import stamina


class TryAgainError(Exception):
    """It may be taken later; `after`: seconds that the other side asks to wait."""

    def __init__(self, words: str, after: float | None = None) -> None:
        super().__init__(words)
        self.after = after


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds between tries: the first wait, doubled after each up to the longest, with jitter on top."""

    first: float = 0.2
    longest: float = 10.0
    jitter: float = 1.0


class Patience:
    """Tries for so many seconds at the most."""

    def __init__(self, seconds: float, pace: Pace | None = None) -> None:
        self._seconds = seconds
        self._pace = pace or Pace()
        self._ended = False

    def send(self, attempt: Callable[[], None]) -> None:
        """Make one attempt after another while they raise TryAgainError.

        Raises the last one when the time is over, it asks for more patience than there is, or after `end`.
        """
        for each in stamina.retry_context(
            self._wait_after,
            attempts=None,
            timeout=self._seconds,
            wait_initial=self._pace.first,
            wait_max=self._pace.longest,
            wait_jitter=self._pace.jitter,
        ):
            with each:
                attempt()

    def end(self) -> None:
        """Let requests under way, of any thread, try no more."""
        self._ended = True

    def _wait_after(self, error: Exception) -> bool | float:
        """Whether to try again after an error, or the seconds to wait first: stamina's."""
        if not isinstance(error, TryAgainError) or self._ended:
            return False
        if error.after is None:
            return True
        return error.after if error.after <= self._seconds else False


def retry_after(value: str | None, now: Callable[[], datetime]) -> float | None:
    """The seconds that a Retry-After header asks for (RFC 9110, 10.2.3): a number, or a date; None for neither."""
    if value is None:
        return None
    if value.strip().isdigit():
        return float(value)
    with suppress(ValueError, TypeError):
        date = parsedate_to_datetime(value)
        return max(0.0, (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now().timestamp())
    return None
