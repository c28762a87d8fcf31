"""Files with `transactions`: a commit has mutations whole, whatever dies and however batches are cut again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace_spark.batch.delivery import Delivered
from tests.properties import examples
from tests.unit.spark.sinks.files.stores import local
from tests.unit.spark.sinks.transactions_contract import numbers, require_together, topics

_numbers = numbers()


@pytest.mark.slow
@pytest.mark.promise("transactions.together")
@given(topics(), st.lists(st.integers(1, 40), max_size=4), st.lists(st.integers(0, 12), min_size=1, max_size=4))
@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_mutation_is_committed_whole_and_once(
    tmp_path: Path, log: Sequence[Delivered], cuts: list[int], steps: list[int]
) -> None:
    require_together(local(tmp_path / str(next(_numbers)), format="jsonl", transactions=True), log, cuts, steps)
