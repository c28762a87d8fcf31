"""The records of losses, as `.progress` has them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.publish.reports import ReportedLoss, acknowledged, cause_of, decode_loss, loss_record
from tailrace.state import Loss, Missing
from tailrace_schemas.errors import CorruptError
from tailrace_schemas.position import Position

LOSS = Loss(Missing.LOST, (6, 7), Position(1, 6, 40), Position(1, 8, 0))
PLACES = st.builds(Position, st.integers(1, 9), st.integers(-1, 2**62), st.integers(0, 2**31))
SEGMENTS = st.tuples(st.integers(-1, 2**62), st.integers(0, 2**62))
LOSSES = st.builds(Loss, st.sampled_from(Missing), SEGMENTS, PLACES, PLACES)


@given(st.text(min_size=1), LOSSES, st.integers(0, 2**50), st.lists(st.text(), max_size=5))
def test_a_loss_comes_back_as_it_was_written(cluster: str, loss: Loss, seen: int, tables: list[str]) -> None:
    """A cluster's name may have anything in it."""
    key, value = loss_record(cluster.encode(errors="replace").decode(), "h-1", loss, seen, tables)
    again = decode_loss(key, value)
    assert again is not None
    assert (again.cluster, again.host) == (cluster.encode(errors="replace").decode(), "h-1")
    assert (again.kind, again.words, again.seen) == (loss.kind.value, str(loss), seen)
    assert (again.segments, again.first, again.until) == (loss.segments, loss.first, loss.until)
    assert (again.tables, again.acknowledged) == (tuple(sorted(tables)), None)
    assert again.cause == f"loss of {loss.segments[0]}"


def test_an_acknowledged_loss_keeps_everything_else() -> None:
    """What a later version added too."""
    key, value = loss_record("c", "h", LOSS, 9)
    later = json.dumps({**json.loads(value), "more": 1}).encode()
    assert json.loads(acknowledged(later, 77)) == {**json.loads(later), "acknowledged": 77}
    before, after = decode_loss(key, later), decode_loss(key, acknowledged(later, 77))
    assert before is not None
    assert after == ReportedLoss(
        "c", "h", "loss/1/6", "lost", str(LOSS), 9, (6, 7), LOSS.first, LOSS.until, (), acknowledged=77
    )


@pytest.mark.parametrize("key", [b"c/h", b"c/h/parked/1/2", b"c/h/loss", b"c/h/loss/1", b"c/h/losses/1/2", b"\xff"])
def test_other_records_are_no_losses(key: bytes) -> None:
    assert decode_loss(key, b"no JSON at all") is None


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"{}", b'{"version":1}', b'{"version":"x"}', b'{"version":2}', b'{"version":1,"kind":1}']
)
def test_a_record_that_is_none_of_ours_is_said(value: bytes) -> None:
    with pytest.raises(CorruptError, match="loss/1/6"):
        decode_loss(b"c/h/loss/1/6", value)


def test_names_in_health() -> None:
    assert cause_of("loss/1/6") == cause_of("retracted/1/6") == "loss of 6"
