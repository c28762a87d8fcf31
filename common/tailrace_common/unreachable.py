"""What is said of a service that cannot be connected to: why, in a few words, and what to do; and of a next try."""

from __future__ import annotations

import re
from typing import Final

from tailrace_common.durations import duration_words
from tailrace_schemas.errors import ServiceError

# In the words of libpq, PyMySQL, httpx, librdkafka, urllib3 and the drivers of Cassandra.
_FAULTS: Final = (
    (re.compile(r"connection refused|errno 111\b", re.IGNORECASE), "connection refused"),
    (re.compile(r"connect\w*( \w+)? tim(ed out|eout)", re.IGNORECASE), "no answer in time"),
    (
        re.compile(r"name or service not known|could not translate host|name resolution|no address associated", re.I),
        "unknown host",
    ),
    (re.compile(r"no route to host|network is unreachable", re.IGNORECASE), "no route to host"),
)


class UnreachableError(ServiceError):
    """A service cannot be connected to. `problem` says which, and why; `remedy` what to do."""

    def __init__(self, location: str, fault: str, remedy: str) -> None:
        self.problem = f"Cannot connect to {location} ({fault})"
        self.remedy = remedy
        super().__init__(f"{self.problem}. {remedy}")


def unreachable(location: str, words: str, service: str, address: str = "its address") -> UnreachableError | None:
    """The error of a client with these words of a service; None where it could connect.

    Of "the database": `Cannot connect to LOCATION (connection refused). Start the database or fix its address.`
    """
    fault = connection_fault(words)
    return None if fault is None else UnreachableError(location, fault, start_or_fix(service, address))


def connection_fault(words: str) -> str | None:
    """Why no connection was made, by the words of a client; None for all else."""
    return next((fault for pattern, fault in _FAULTS if pattern.search(words)), None)


def problem_and_remedy(error: BaseException) -> tuple[str, str]:
    """What an error says, and what to do, where it has that apart; else all of it, and nothing."""
    return (error.problem, error.remedy) if isinstance(error, UnreachableError) else (str(error), "")


def start_or_fix(service: str, address: str = "its address") -> str:
    """What to do about a service that does not answer."""
    return f"Start {service} or fix {address}."


def with_next_try(words: str, seconds: float) -> str:
    """The words as a sentence, and when it is tried again: `WORDS. Next try in 1 s.`"""
    end = "" if words.endswith((".", "!", "?")) else "."
    wait = f"{seconds:.1f} s" if seconds < 1 else duration_words(seconds)
    return f"{words}{end} Next try in {wait}."
