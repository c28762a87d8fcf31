"""The floor that truncations erase by: only ever forwards, and at once only what no further host can take back."""

from __future__ import annotations

from uuid import UUID

from tailrace_schemas.change import Deletion
from tailrace_spark.merge.truncation import absorb_truncations
from tailrace_spark.rowstate.truncation import Truncation, TruncationState

TABLE = UUID(int=1)
SECOND = 1_000_000


def told(host: str, written: int, seen: int) -> TruncationState:
    return TruncationState((Truncation(TABLE, host, written, seen),))


def test_erases_at_once_what_is_older_than_a_ring_delay() -> None:
    new = told("a", 100 * SECOND, 100_000)
    assert absorb_truncations(TruncationState(), new, None, 100, 30.0) == (new, Deletion(70 * SECOND, 70))


def test_erases_up_to_the_truncation_once_a_ring_delay_has_passed() -> None:
    stored = told("a", 100 * SECOND, 100_000)
    erased = Deletion(70 * SECOND, 70)
    assert absorb_truncations(stored, TruncationState(), erased, 129, 30.0) == (stored, None)
    assert absorb_truncations(stored, TruncationState(), erased, 130, 30.0) == (stored, Deletion(100 * SECOND, 100))
    assert absorb_truncations(stored, TruncationState(), erased, None, 30.0) == (stored, None)


def test_a_redelivered_truncation_erases_nothing_more() -> None:
    stored = told("a", 100 * SECOND, 100_000)
    assert absorb_truncations(stored, stored, Deletion(100 * SECOND, 100), 500, 30.0) == (stored, None)


def test_an_older_truncation_is_stored_and_does_not_move_the_floor_back() -> None:
    stored, new = told("b", 100 * SECOND, 100_000), told("a", 90 * SECOND, 90_000)
    truncations, floor = absorb_truncations(stored, new, Deletion(100 * SECOND, 100), 500, 30.0)
    assert {one.host for one in truncations.latest} == {"a", "b"}
    assert floor is None


def test_no_truncation_erases_nothing() -> None:
    assert absorb_truncations(TruncationState(), TruncationState(), None, 500, 30.0) == (TruncationState(), None)
