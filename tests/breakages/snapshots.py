"""Breakages of snapshots: what is published twice, and what is taken for equal."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import ASSERTED, Breakage, Needs, Red

PUBLISHING: Final = "integration/snapshot/test_publishing.py"

BREAKAGES: Final = (
    Breakage(
        name="a-later-attempt-begins-a-range-again",
        promise="a snapshot publishes each row once",
        file="spark/tailrace_spark/snapshot/publishing.py",
        old="            self._progress.read()  # behind the fence",
        new="            # behind the fence",
        needs=Needs.NODE,
        reds=(Red(PUBLISHING, "test_a_later_attempt_at_a_range_ends_an_earlier_one", ASSERTED),),
    ),
)
