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
    Breakage(
        name="rows-come-as-fast-as-they-can",
        promise="a read keeps to its limits",
        file="spark/tailrace_spark/snapshot/pace.py",
        old="now - 1.0) + rows / self._rate\n",
        new="now - 1.0) + rows / self._rate / 100\n",
        needs=Needs.NOTHING,
        reds=(Red("unit/spark/snapshot/test_reading.py", "test_rows_come_no_faster_than_asked_for[50.0]", ASSERTED),),
    ),
)
