"""How sinks repeat a request: while that may help, with growing waits, and for no longer than a section says."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from tailrace_common.backoff import Waits, repeated

WAITS: Final = Waits(0.2, 10.0)


class RetryableError(Exception):
    """A request that failed may succeed later; `after`: seconds that the server asks to wait."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


class RetryPolicy:
    """Repeats attempts for at most `seconds`. Any thread may use it."""

    def __init__(self, seconds: float, waits: Waits = WAITS) -> None:
        self._seconds = seconds
        self._waits = waits
        self._ended = False

    def run(self, attempt: Callable[[], None]) -> None:
        """Make one attempt after another while they raise RetryableError.

        Raises the last one when the time is over, when it asks for a longer wait than that, or after `end`.
        """
        repeated(attempt, self._waits, self._again, seconds=self._seconds)

    def end(self) -> None:
        """Repeat no attempt any more, of any thread."""
        self._ended = True

    def _again(self, error: Exception) -> bool | float:
        if not isinstance(error, RetryableError) or self._ended:
            return False
        return True if error.after is None else error.after


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
