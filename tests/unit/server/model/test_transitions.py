"""What operations and workers make of a subscription, against a table of states written by hand."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_server.model import transitions
from tailrace_server.model.subscription import (
    INITIAL,
    ONLY,
    SNAPSHOT,
    ConflictError,
    Shape,
    Sink,
    Start,
    State,
    Subscription,
    Topics,
)
from tailrace_spark.source.readings import EVERY
from tests.unit.server.requests import subscription

SINK = Sink(type="sql", target="dwh", options={"table": "{table}"})
OPERATIONS: dict[str, transitions.Transition] = {
    "pause": transitions.paused,
    "resume": transitions.resumed,
    "alter": lambda one: transitions.altered(one, SINK, Shape(where="id > 1"), one.revision),
    "reset": partial(transitions.restarted, start=Start("latest"), reading="again"),
    "cancel": transitions.cancelled,
}
# The state behind each operation, by the state before it; - is refused.
STATES = {
    "active": {"pause": "paused", "resume": "active", "alter": "active", "reset": "active", "cancel": "cancelled"},
    "paused": {"pause": "paused", "resume": "active", "alter": "paused", "reset": "paused", "cancel": "cancelled"},
    "failing": {"pause": "paused", "resume": "active", "alter": "active", "reset": "active", "cancel": "cancelled"},
    "done": {"pause": "-", "resume": "-", "alter": "active", "reset": "active", "cancel": "cancelled"},
    "cancelled": dict.fromkeys(OPERATIONS, "-"),
}


@given(st.sampled_from(sorted(STATES)), st.lists(st.sampled_from([*OPERATIONS, "fail"]), max_size=8))
def test_states_follow_the_table(state: str, operations: list[str]) -> None:
    now, expected = subscription(state=State(state)), state
    for operation in operations:
        if operation == "fail":
            if now.state in (State.ACTIVE, State.FAILING):
                now, expected = transitions.failed(now, "down", "start it"), "failing"
                assert (now.reason, now.action) == ("down", "start it")
            continue
        before, after = now, STATES[expected][operation]
        if after == "-":
            with pytest.raises(ConflictError, match=r"is (cancelled|done)"):
                OPERATIONS[operation](now)
            continue
        now, expected = OPERATIONS[operation](now), after
        assert (now.state, now.reason, now.attempts) == (expected, "", 0)
        assert now.token == before.token + (operation == "reset")
        assert now.revision >= before.revision
        assert (now.id, now.table, now.name) == (before.id, before.table, before.name)


def test_what_runs_is_run_again_with_what_was_altered() -> None:
    one = subscription(owner="w", lease_until=5, token=3)
    altered = transitions.altered(one, SINK, Shape(columns={"a": "mask"}), 0)
    assert (altered.revision, altered.owner, altered.token) == (1, "w", 3)
    assert altered.shape.columns == {"a": "mask"}
    reset = transitions.restarted(one, Start("latest"), "first")
    assert (reset.revision, reset.owner, reset.token, reset.lease_until) == (1, None, 4, 5)


@pytest.mark.promise("sinks.read-again")
def test_what_is_read_again_is_another_reading() -> None:
    """A log that goes on where it is stays in its reading."""
    one = subscription(topics=Topics(ids={"t": "id"}, readings={"t": "of it"}))
    assert transitions.restarted(one, None, "new", snapshot=True).topics == one.topics
    assert transitions.restarted(one, Start(), "new", snapshot=True).topics == Topics(readings={EVERY: "new"})


def test_a_reset_with_a_snapshot_makes_one_take_snapshots() -> None:
    reset = transitions.restarted(subscription(start=Start("latest")), None, "", snapshot=True)
    assert (reset.snapshot, reset.start, reset.token) == (INITIAL, Start("latest"), 1)
    alone = subscription(shape=Shape(stream={SNAPSHOT: ONLY, "trigger_seconds": 5}))
    assert transitions.restarted(alone, None, "", snapshot=True).shape == alone.shape


def test_one_that_is_done_is_reset_or_altered() -> None:
    done = transitions.finished(subscription(shape=Shape(stream={SNAPSHOT: ONLY})), "")
    for operation in (transitions.paused, transitions.resumed):
        with pytest.raises(ConflictError, match=r"is done with its snapshot.*tailrace reset shop.orders/w --snapshot"):
            operation(done)
    following = transitions.altered(done, SINK, Shape(stream={SNAPSHOT: INITIAL}), done.revision)
    assert (following.state, following.snapshot) == (State.ACTIVE, INITIAL)
    assert transitions.restarted(done, None, "", snapshot=True).state is State.ACTIVE
    assert transitions.cancelled(done).state is State.CANCELLED


def test_a_target_of_another_type_is_another_subscription() -> None:
    with pytest.raises(
        ConflictError, match=r"shop.orders/w writes into a sink of type sql, and t is of type kafka: cancel it"
    ):
        transitions.altered(subscription(), Sink(type="kafka", target="t"), Shape(), 0)
    assert transitions.altered(subscription(), Sink(type="sql", target="t"), Shape(), 0).sink.target == "t"


def test_what_was_altered_meanwhile_is_not_altered_back() -> None:
    one = transitions.altered(subscription(), SINK, Shape(columns={"email": "mask"}), 0)
    with pytest.raises(ConflictError, match=r"shop.orders/w was changed meanwhile"):
        transitions.altered(one, SINK, Shape(where="id > 1"), 0)


def test_a_failing_one_that_is_resumed_is_tried_at_once() -> None:
    failing: Subscription = transitions.failed(subscription(), "down", "start it")
    assert (failing.revision, transitions.resumed(failing).revision) == (0, 1)
