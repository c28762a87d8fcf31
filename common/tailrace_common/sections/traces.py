"""The settings of traces: spans of changes on their way, for a receiver of OpenTelemetry."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from tailrace_common.sections.section import Section


class TracesSettings(Section):
    """Spans of changes from the log to the sinks, sent by OTLP over HTTP. Needs tailrace[otel]. docs/traces.md"""

    endpoint: str | None = Field(
        default=None,
        examples=["http://127.0.0.1:4318/v1/traces"],
        description="URL that takes spans as protobuf. Unset: nothing is traced, and records have no header. A token "
        "goes into the variable OTEL_EXPORTER_OTLP_HEADERS, not here",
    )
    sample_ratio: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.01, description="Share of an agent's transactions that are traced. Streams follow those"
    )

    @field_validator("endpoint")
    @classmethod
    def _check_endpoint(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("must be a URL such as http://127.0.0.1:4318/v1/traces")
        if parts.username is not None or parts.password is not None:
            raise ValueError("must have no user and no password: set OTEL_EXPORTER_OTLP_HEADERS")
        return value
