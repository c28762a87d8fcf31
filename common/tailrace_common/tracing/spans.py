"""What is traced, without a library: a span as the agent begins and ends it, and who makes spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

TRACEPARENT: Final = "traceparent"
"""The header of a record that names its producer's span: W3C Trace Context, as ASCII."""
MOST_PARENTS: Final = 128
"""The most producers' spans that a batch is linked to: the default of OTEL_SPAN_LINK_COUNT_LIMIT."""

Attributes = Mapping[str, str | int | float | Sequence[str]]
Headers = Sequence[tuple[str, bytes]]


class TraceSpan(Protocol):
    """A span that was begun, and is recorded."""

    @property
    def headers(self) -> Headers:
        """What carries it on in records: TRACEPARENT."""

    def end(self, attributes: Attributes, error: str | None = None) -> None:
        """It ends now; an `error` says why its work is given up."""


class Tracer(Protocol):
    """Makes spans of one process, and sends them in a thread of its own."""

    def begin(self, name: str) -> TraceSpan | None:
        """A span of a new trace, which begins now; None where the trace is not in the sample."""

    def batch(self, name: str, parents: Sequence[str], began: int, attributes: Attributes) -> None:
        """A span of a batch, from `began` (nanoseconds since 1970) to now, linked to its records' producers.

        `parents` are values of TRACEPARENT, of which MOST_PARENTS at most count. Each of their traces goes on with a
        span of the same time, linked to the batch's. Where none is valid and sampled, there is no span.
        """

    def close(self) -> None:
        """Send what has ended, for a few seconds at most."""
