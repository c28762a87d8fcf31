from __future__ import annotations

import itertools
import re

import pytest

from tailrace.demo.script import LAST, SCHEMA, statements, templates

NOW = 1_700_000_000_000_000
DRAWN = re.compile(r"\\\$\w+")


def script(seed: int, count: int) -> list[str]:
    return list(itertools.islice(statements(seed, NOW), count))


def test_the_default_amount_has_statements_of_every_kind() -> None:
    written = script(1, 300)
    for _, line in templates():
        for template in line:
            pattern = re.compile(DRAWN.sub(".*", re.escape(template)), re.DOTALL)
            assert any(pattern.fullmatch(statement) for statement in written), template


def test_nothing_that_a_table_which_is_compared_cannot_have() -> None:
    assert not re.search(r"\b(TTL|TRUNCATE|counter)\b", " ".join((*script(1, 2000), *SCHEMA)))


def test_statements_on_lists_choose_no_later_write_time_than_their_own() -> None:
    """A list that a later write time had emptied could not be edited by index."""
    for cql in script(1, 3000):
        if "shop.orders" in cql:
            assert all(int(time) <= NOW for time in re.findall(r"USING TIMESTAMP (\d+)", cql)), cql


@pytest.mark.parametrize("seed", range(1, 4))
def test_the_last_rows_are_never_touched_before(seed: int) -> None:
    assert not any(LAST in cql for cql in script(seed, 3000))
