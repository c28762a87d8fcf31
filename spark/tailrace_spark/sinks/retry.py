"""How sinks repeat a request: while that may help, with growing waits, and for no longer than a section says."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import stamina


class RetryableError(Exception):
    """A request that failed may succeed later; `after`: seconds that the server asks to wait."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds between two attempts: the first wait, doubled after each up to the longest, with jitter on top."""

    first: float = 0.2
    longest: float = 10.0
    jitter: float = 1.0


class RetryPolicy:
    """Repeats attempts for at most `seconds`. Any thread may use it."""

    def __init__(self, seconds: float, backoff: Backoff | None = None) -> None:
        self._seconds = seconds
        self._backoff = backoff or Backoff()
        self._ended = False

    def run(self, attempt: Callable[[], None]) -> None:
        """Make one attempt after another while they raise RetryableError.

        Raises the last one when the time is over, when it asks for a longer wait than that, or after `end`.
        """
        for retry in stamina.retry_context(
            self._wait_after,
            attempts=None,
            timeout=self._seconds,
            wait_initial=self._backoff.first,
            wait_max=self._backoff.longest,
            wait_jitter=self._backoff.jitter,
        ):
            with retry:
                attempt()

    def end(self) -> None:
        """Repeat no attempt any more, of any thread."""
        self._ended = True

    def _wait_after(self, error: Exception) -> bool | float:
        """Stamina's hook: whether to repeat after an error, or the seconds to wait before that."""
        if not isinstance(error, RetryableError) or self._ended:
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
