"""Spans as a receiver of OpenTelemetry's protocol gets them."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from tailrace.local.ports import free_port
from tailrace_common.settings import settings_from
from tailrace_common.tracing import open_tracer
from tailrace_common.tracing.otlp import OtlpTracer
from tailrace_common.tracing.spans import MOST_PARENTS, TRACEPARENT
from tailrace_schemas.errors import SettingsError
from tests.support.otlp import OtlpReceiver, attributes_of, ids_in, ids_of

UNSAMPLED = f"00-{'1' * 32}-{'2' * 16}-00"
STRANGE = ("", "x", "00-zz-zz-01", f"00-{'0' * 32}-{'2' * 16}-01", f"ff-{'1' * 32}-{'2' * 16}-01", "\u2028" * 1000)


def test_a_span_that_ended_arrives_and_its_header_names_it(receiver: OtlpReceiver) -> None:
    with closing(OtlpTracer(receiver.endpoint, "agent", {"tailrace.host": "h1"}, 1.0)) as tracer:
        span = tracer.begin("tailrace.publish")
        assert span is not None
        span.end({"changes": 3, "topics": ["a", "b"]})
        broken = tracer.begin("tailrace.publish")
        assert broken is not None
        broken.end({}, "given up")
    [(service, first), (_, second)] = receiver.spans
    assert service == "agent"
    [(name, value)] = span.headers
    assert (name, ids_in(value)) == (TRACEPARENT, ids_of(first))
    assert attributes_of(first) == {"changes": 3, "topics": ["a", "b"]}
    assert (first.parent_span_id, first.status.code) == (b"", 0)
    assert (second.status.code, second.status.message) == (2, "given up")
    assert second.trace_id != first.trace_id


def test_what_is_not_in_the_sample_has_no_span(receiver: OtlpReceiver) -> None:
    with closing(OtlpTracer(receiver.endpoint, "agent", {}, 0.0)) as tracer:
        assert [tracer.begin("tailrace.publish") for _ in range(100)] == [None] * 100
    assert receiver.spans == []


def test_a_batch_is_linked_to_its_producers_and_goes_on_with_their_traces(receiver: OtlpReceiver) -> None:
    began = time.time_ns() - 5_000_000
    parents = [f"00-{number:032x}-{number:016x}-01" for number in range(1, 4)]
    with closing(OtlpTracer(receiver.endpoint, "stream", {}, 1.0)) as tracer:
        tracer.batch("tailrace.batch", [*STRANGE, UNSAMPLED, *parents], began, {"tailrace.batch": 7})
    [batch], changes = receiver.named("tailrace.batch"), receiver.named("tailrace.batch.changes")
    assert [f"00-{link.trace_id.hex()}-{link.span_id.hex()}-01" for link in batch.links] == parents
    assert attributes_of(batch) == {"tailrace.batch": 7}
    assert (batch.start_time_unix_nano, batch.parent_span_id) == (began, b"")
    assert [f"00-{span.trace_id.hex()}-{span.parent_span_id.hex()}-01" for span in changes] == parents
    for span in changes:
        assert [(link.trace_id, link.span_id) for link in span.links] == [(batch.trace_id, batch.span_id)]
        assert (span.start_time_unix_nano, span.end_time_unix_nano) == (began, batch.end_time_unix_nano)


def test_a_batch_without_a_sampled_producer_has_no_span(receiver: OtlpReceiver) -> None:
    with closing(OtlpTracer(receiver.endpoint, "stream", {}, 1.0)) as tracer:
        tracer.batch("tailrace.batch", [*STRANGE, UNSAMPLED], time.time_ns(), {})
    assert receiver.spans == []


def test_links_are_bounded(receiver: OtlpReceiver) -> None:
    parents = [f"00-{number:032x}-{number:016x}-01" for number in range(1, 2 * MOST_PARENTS)]
    with closing(OtlpTracer(receiver.endpoint, "stream", {}, 1.0)) as tracer:
        tracer.batch("tailrace.batch", parents, time.time_ns(), {})
    [batch] = receiver.named("tailrace.batch")
    assert (len(batch.links), batch.dropped_links_count) == (MOST_PARENTS, 0)


@pytest.mark.slow
def test_a_receiver_that_is_not_there_is_no_error() -> None:
    """Spans are lost then, and what is traced goes on."""
    with closing(OtlpTracer(f"http://127.0.0.1:{free_port('127.0.0.1')}/v1/traces", "agent", {}, 1.0)) as tracer:
        span = tracer.begin("tailrace.publish")
        assert span is not None
        span.end({})


def test_nothing_is_traced_unless_there_is_an_endpoint() -> None:
    assert settings_from({}, "test").traces.endpoint is None
    assert open_tracer(None, "agent", {}) is None


@pytest.mark.parametrize("endpoint", ["127.0.0.1:4318", "grpc://127.0.0.1:4317", "http://"])
def test_an_endpoint_is_a_url_of_http(endpoint: str) -> None:
    with pytest.raises(SettingsError, match=r"traces\.endpoint.*must be a URL such as"):
        settings_from({"traces": {"endpoint": endpoint}}, "test")


def test_an_endpoint_has_no_password_and_the_error_does_not_repeat_it() -> None:
    with pytest.raises(SettingsError, match="OTEL_EXPORTER_OTLP_HEADERS") as refused:
        settings_from({"traces": {"endpoint": "http://user:hunter2@127.0.0.1/v1/traces"}}, "test")
    assert "hunter2" not in str(refused.value)
