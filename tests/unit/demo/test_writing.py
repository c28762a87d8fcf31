from __future__ import annotations

import pytest

from tailrace.demo.script import LAST, LAST_STATEMENTS
from tailrace.demo.writing import written


@pytest.mark.parametrize("changes", [1, 2, 30])
def test_so_many_statements_and_the_last_ones(changes: int) -> None:
    statements = list(written(1, changes, None))
    assert len(statements) == changes + len(LAST_STATEMENTS)
    assert statements[-len(LAST_STATEMENTS) :] == list(LAST_STATEMENTS)
    assert not any(LAST in statement for statement in statements[: -len(LAST_STATEMENTS)])


def test_for_so_long_at_least_one_and_the_last_ones() -> None:
    assert len(list(written(1, 300, 0.0))) == 1 + len(LAST_STATEMENTS)
