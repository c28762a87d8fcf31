"""A receiver of OpenTelemetry's protocol over HTTP on this machine, which keeps the spans that it is sent."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan

from tests.support.loopback_server import LoopbackServer


class OtlpReceiver(LoopbackServer):
    """Listens on a free port of the loopback address while it is entered. `spans` are (service, span), as they came."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, ProtoSpan]] = []
        super().__init__(self._handler(), "otlp")

    @property
    def endpoint(self) -> str:
        """Where spans go."""
        return f"{self.address}/v1/traces"

    def named(self, name: str) -> list[ProtoSpan]:
        """The spans of this name."""
        return [span for _, span in self.spans if span.name == name]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        spans = self.spans

        class Handler(BaseHTTPRequestHandler):
            """Takes what the protocol says: a POST of a protobuf."""

            def do_POST(self) -> None:
                """Keep the spans of a request."""
                request = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
                for resource in request.resource_spans:
                    about = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
                    for scope in resource.scope_spans:
                        spans.extend((about["service.name"], span) for span in scope.spans)
                content = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200 if self.path == "/v1/traces" else 404)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        return Handler


def attributes_of(span: ProtoSpan) -> dict[str, object]:
    """A span's attributes: texts, numbers, and lists of texts."""
    values: dict[str, object] = {}
    for pair in span.attributes:
        kind = pair.value.WhichOneof("value")
        value = getattr(pair.value, kind)
        values[pair.key] = [item.string_value for item in value.values] if kind == "array_value" else value
    return values


def ids_of(span: ProtoSpan) -> tuple[str, str]:
    """The ids of its trace and of itself, as hexadecimal digits."""
    return span.trace_id.hex(), span.span_id.hex()


def ids_in(traceparent: bytes) -> tuple[str, str]:
    """The same of the span that a header names, as W3C Trace Context has them."""
    _version, trace, span, _flags = traceparent.decode("ascii").split("-")
    return trace, span
