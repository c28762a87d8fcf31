"""The contract of a lake's tables that follow, with filters of rows: what is of two tables and their commits."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count

import pytest

from tailrace_spark.sinks.lake.current import LakeCurrent
from tests.unit.spark.sinks.contract import is_cut_off, piece
from tests.unit.spark.sinks.lake.stores import FollowedLake
from tests.unit.spark.sinks.row_filter_contract import LOG, RowFilterContract, filtered, rows_of, write


class LakeRowFilterContract(RowFilterContract):
    """As for all sinks that filter rows; `another` makes FollowedLakes."""

    @pytest.mark.slow
    def test_a_batch_that_shows_nothing_is_no_gap(
        self, another: Callable[[], FollowedLake], caplog: pytest.LogCaptureFixture
    ) -> None:
        """The next batch does not look into the state for what a crash may have left out."""
        followed = another()
        with caplog.at_level(logging.INFO, "tailrace_spark"):
            for number in range(3):
                write(followed, "row.total > 1", LOG.insert(("k",), (number,), 1, total=number))
            write(followed, "row.total > 1", LOG.update(("k",), (0,), 2, name="hidden still"))
            write(followed, "row.total > 1", LOG.update(("k",), (1,), 2, total=2))
        assert rows_of(followed) == [("k", 1, 2, None), ("k", 2, 2, None)]
        assert "rebuilding" not in caplog.text

    @pytest.mark.slow
    def test_what_a_crash_leaves_out_is_shown_as_the_filter_has_it(
        self, another: Callable[[], FollowedLake], caplog: pytest.LogCaptureFixture
    ) -> None:
        """Whichever step of a batch is the last, and though it never comes again."""
        with caplog.at_level(logging.INFO, "tailrace_spark"):
            for step in count():
                followed = another()
                write(
                    followed, "row.total > 1", *(LOG.insert(("k",), (number,), 1, total=number) for number in range(4))
                )
                changes = [LOG.update(("k",), (0,), 2, total=2), LOG.update(("k",), (3,), 2, total=0)]
                died = is_cut_off(
                    filtered(LakeCurrent(followed.opened(step), 2, clock=lambda: 0), "row.total > 1"), piece(changes)
                )
                before = [("k", 2, 2, None), ("k", 3, 3, None)], [("k", 0, 2, None), ("k", 2, 2, None)]
                write(followed, "row.total > 1", LOG.insert(("k",), (9,), 1, total=1))
                assert rows_of(followed) in before, f"died at step {step}"
                write(followed, "row.total > 1", *changes)
                assert rows_of(followed) == before[1]
                if not died:
                    break
        assert "rebuilding it from the state" in caplog.text
