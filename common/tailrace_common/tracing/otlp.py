"""Spans by OpenTelemetry's SDK, to a receiver of OTLP over HTTP. The one importer of opentelemetry."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, get_current_span, set_span_in_context
from opentelemetry.trace import Span as OpenSpan
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.trace.status import StatusCode

from tailrace_common.tracing.spans import MOST_PARENTS, TRACEPARENT, Attributes, Headers

# A receiver that does not answer keeps a process from its end for two of these: what is under way, and the rest.
_EXPORT_SECONDS: Final = 2.0
_QUEUE: Final = 2048
_W3C: Final = TraceContextTextMapPropagator()


class OtlpSpan:
    """A span that was begun, and is recorded; `headers` carry it on in records."""

    def __init__(self, span: OpenSpan) -> None:
        self._span = span
        carrier: dict[str, str] = {}
        _W3C.inject(carrier, set_span_in_context(span, Context()))
        self.headers: Headers = ((TRACEPARENT, carrier[TRACEPARENT].encode("ascii")),)

    def end(self, attributes: Attributes, error: str | None = None) -> None:
        """It ends now; an `error` says why its work is given up."""
        self._span.set_attributes(attributes)
        if error is not None:
            self._span.set_status(StatusCode.ERROR, error)
        self._span.end()


class OtlpTracer:
    """Makes and sends spans of a service; `ratio` of the traces that begin in it are in the sample.

    What this leaves open is set by OpenTelemetry's own variables, such as OTEL_EXPORTER_OTLP_HEADERS.
    """

    def __init__(self, endpoint: str, service: str, attributes: Attributes, ratio: float) -> None:
        # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win over our names.
        resource = Resource({"service.name": service, **attributes}).merge(OTELResourceDetector().detect())
        sampler = ParentBased(TraceIdRatioBased(ratio))
        self._provider = TracerProvider(sampler=sampler, resource=resource, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=endpoint, timeout=_EXPORT_SECONDS)
        processor = BatchSpanProcessor(exporter, max_queue_size=_QUEUE, max_export_batch_size=_QUEUE)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("tailrace")

    def begin(self, name: str) -> OtlpSpan | None:
        """A span of a new trace, which begins now; None where the trace is not in the sample."""
        span = self._tracer.start_span(name, context=Context(), kind=SpanKind.PRODUCER)
        return OtlpSpan(span) if span.is_recording() else None

    def batch(self, name: str, parents: Sequence[str], began: int, attributes: Attributes) -> None:
        """A span of a batch, from `began` (nanoseconds since 1970) to now, linked to its records' producers.

        `parents` are values of TRACEPARENT, of which MOST_PARENTS at most count. Each of their traces goes on with a
        span of the same time, linked to the batch's. Where none is valid and sampled, there is no span.
        """
        producers = list(_contexts(parents[:MOST_PARENTS]))
        if not producers:
            return
        links = [Link(producer) for producer in producers]
        batch = self._tracer.start_span(
            name, context=Context(), kind=SpanKind.CONSUMER, links=links, attributes=attributes, start_time=began
        )
        ended = time.time_ns()
        for producer in producers:
            span = self._tracer.start_span(
                f"{name}.changes",
                context=set_span_in_context(NonRecordingSpan(producer), Context()),
                kind=SpanKind.CONSUMER,
                links=[Link(batch.get_span_context())],
                start_time=began,
            )
            span.end(ended)
        batch.end(ended)

    def close(self) -> None:
        """Send what has ended, for a few seconds at most."""
        self._provider.shutdown()


def _contexts(parents: Sequence[str]) -> Iterator[SpanContext]:
    """The spans that values of TRACEPARENT name, as far as they are valid and sampled. Records are anybody's."""
    for value in parents:
        context = get_current_span(_W3C.extract({TRACEPARENT: value}, Context())).get_span_context()
        if context.is_valid and context.trace_flags.sampled:
            yield context
