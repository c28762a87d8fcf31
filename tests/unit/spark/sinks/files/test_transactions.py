"""Files with `transactions`: a file has mutations whole, whatever dies and however batches are cut again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace_schemas.change import Marker
from tailrace_spark.batch.delivery import Delivered
from tailrace_spark.sinks.files.outlet import FileLimits
from tests.properties import examples
from tests.unit.spark.sinks.change_log_contract import deliver
from tests.unit.spark.sinks.files.stores import local, names
from tests.unit.spark.sinks.transactions_contract import batch, mutation, numbers, records_of, require_together, topics

_numbers = numbers()


@pytest.mark.slow
@pytest.mark.promise("transactions.together")
@given(topics(), st.lists(st.integers(1, 40), max_size=4), st.lists(st.integers(0, 12), min_size=1, max_size=4))
@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_mutation_is_committed_whole_and_once(
    tmp_path: Path, log: Sequence[Delivered], cuts: list[int], steps: list[int]
) -> None:
    require_together(local(tmp_path / str(next(_numbers)), format="jsonl", transactions=True), log, cuts, steps)


@pytest.mark.promise("transactions.together")
def test_a_mutation_is_in_one_file_whatever_its_times(tmp_path: Path) -> None:
    """And is named after its first change."""
    day, stored = 86_400_000_000, local(tmp_path, format="jsonl", compress=False, file_mebibytes=1, transactions=True)
    stored.limits = FileLimits(group_records=1)
    log = [
        replace(delivered, change=replace(delivered.change, marker=Marker(index * day)), message=b"")
        for index, delivered in enumerate(records_of([*mutation("a", 0, 3), *mutation("a", 1, 2)]))
    ]
    deliver(stored, *batch(log, 0, 4))
    found = [name.removeprefix("shop.feed/day=1970-01-").removesuffix(".jsonl") for name in names(tmp_path)]
    assert found == [f"0{day}/t.shop.feed-0-{first:020}-{first:020}" for day, first in ((1, 0), (4, 3))]
