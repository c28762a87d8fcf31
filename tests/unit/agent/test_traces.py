"""The spans of the agent's transactions, and the header that names them."""

from __future__ import annotations

from contextlib import closing
from functools import partial

import pytest

from tailrace.agent.limits import Limits
from tailrace_common.tracing.otlp import OtlpTracer
from tailrace_common.tracing.spans import TRACEPARENT
from tests.support.kafka import Crash, Faults
from tests.support.otlp import OtlpReceiver, attributes_of, ids_in, ids_of
from tests.unit.agent.world import entries, world_with


def test_each_transaction_is_a_span_that_its_records_name(receiver: OtlpReceiver) -> None:
    world = world_with(entries("abcdef"), limits=Limits(changes=1, stretch_changes=1, read=1))
    with closing(OtlpTracer(receiver.endpoint, "agent", {}, 1.0)) as tracer:
        world.trace = partial(tracer.begin, "tailrace.publish")
        world.live()
    spans = receiver.named("tailrace.publish")
    sizes = [attributes_of(span)["messaging.batch.message_count"] for span in spans]
    assert len(sizes) == world.kafka.commits > 1
    assert sum(size for size in sizes if isinstance(size, int)) == 6
    assert {str(attributes_of(span)["tailrace.topics"]) for span in spans} == {"['ks.orders']"}
    assert attributes_of(spans[-1])["tailrace.position"] == str(world.kafka.resume.position)
    headers = dict.fromkeys(header for headers in world.kafka.headers for header in headers)
    assert [(name, ids_in(value)) for name, value in headers] == [(TRACEPARENT, ids_of(span)) for span in spans]


def test_a_transaction_that_is_given_up_is_a_span_with_an_error(receiver: OtlpReceiver) -> None:
    world = world_with(entries("ab"))
    with closing(OtlpTracer(receiver.endpoint, "agent", {}, 1.0)) as tracer:
        world.trace = partial(tracer.begin, "tailrace.publish")
        with pytest.raises(Crash):
            world.live(Faults("commit", nth=1))
    [span] = receiver.named("tailrace.publish")
    assert (span.status.code, span.status.message) == (2, "given up: published again from the last commit on")


def test_without_traces_records_have_no_headers() -> None:
    world = world_with(entries("abc"))
    world.live()
    assert world.keys() == ["a", "b", "c"]
    assert set(world.kafka.headers) == {()}
