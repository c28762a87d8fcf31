"""What is said of traces without a library, and the names of their types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:  # OpenTelemetry is imported only where it is asked for
    from tailrace_common.tracing.otlp import OtlpSpan, OtlpTracer

TRACEPARENT: Final = "traceparent"
"""The header of a record that names its producer's span: W3C Trace Context, as ASCII."""
MOST_PARENTS: Final = 128
"""The most producers' spans that a batch is linked to: the default of OTEL_SPAN_LINK_COUNT_LIMIT."""

Attributes = Mapping[str, str | int | float | Sequence[str]]
Headers = Sequence[tuple[str, bytes]]
TraceSpan: TypeAlias = "OtlpSpan"
Tracer: TypeAlias = "OtlpTracer"
