"""The tracer that the settings ask for, if any; OpenTelemetry is imported only then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tailrace_common.tracing.spans import Attributes, Tracer
from tailrace_schemas.errors import SettingsError


def open_tracer(endpoint: str | None, service: str, attributes: Attributes, ratio: float = 1.0) -> Tracer | None:
    """A tracer to an endpoint of OTLP over HTTP, to be closed; None where there is no endpoint.

    `ratio` of the traces that begin in this process are in the sample. Raises SettingsError where the package lacks.
    """
    if endpoint is None:
        return None
    try:
        from tailrace_common.tracing.otlp import OtlpTracer
    except ImportError as cause:
        raise SettingsError(f"traces.endpoint needs {cause.name}: pip install 'tailrace[otel]'") from None
    return OtlpTracer(endpoint, service, attributes, ratio)


@contextmanager
def tracing(endpoint: str | None, service: str, attributes: Attributes, ratio: float) -> Iterator[Tracer | None]:
    """`open_tracer`, closed at the end."""
    tracer = open_tracer(endpoint, service, attributes, ratio)
    try:
        yield tracer
    finally:
        if tracer is not None:
            tracer.close()
