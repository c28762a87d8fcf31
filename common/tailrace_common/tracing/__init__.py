"""Spans of changes on their way, sent to an OpenTelemetry receiver where the settings ask for it."""

from __future__ import annotations

from tailrace_common.tracing.spans import Attributes, Tracer
from tailrace_schemas.errors import SettingsError


def open_tracer(endpoint: str | None, service: str, attributes: Attributes, ratio: float = 1.0) -> Tracer | None:
    """A tracer to an endpoint of OTLP over HTTP, to be closed; None where there is no endpoint.

    `ratio` of the traces that begin in this process are in the sample. Raises SettingsError where the package lacks.
    """
    if endpoint is None:
        return None
    try:
        # OpenTelemetry is imported only where it is asked for.
        from tailrace_common.tracing.otlp import OtlpTracer
    except ImportError as cause:
        raise SettingsError(f"traces.endpoint needs {cause.name}: pip install 'tailrace[otel]'") from None
    return OtlpTracer(endpoint, service, attributes, ratio)
