"""Settings of a stream that follows a test's own topics."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tailrace.local import LocalKafka
from tailrace_common.settings import Settings

_NONE: Mapping[str, object] = MappingProxyType({})


def stream_settings(
    kafka: LocalKafka,
    prefix: str,
    stream: Mapping[str, object] = _NONE,
    sinks: Mapping[str, object] = _NONE,
) -> Settings:
    """With these values of [stream] and these sections of [sink]; unless they say so, no existing rows are copied."""
    return Settings.model_validate(
        {
            "kafka": {"bootstrap.servers": kafka.bootstrap},
            "topics": {"prefix": prefix},
            "stream": {"snapshot": "never", **stream},
            "sink": sinks,
        }
    )
