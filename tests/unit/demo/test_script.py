from __future__ import annotations

import itertools
import re

import pytest

from tailrace.demo.script import LAST_CUSTOMER, last_steps, steps
from tailrace.demo.tables import NESTED, SCALARS, STATEMENTS

NOW = 1_700_000_000_000_000
KINDS = {
    "insert",
    "update",
    "update a static column",
    "delete a static column",
    "overwrite a list",
    "edit a list",
    "edit a list by index",
    "edit a map",
    "delete from a map",
    "edit a set",
    "delete from a set",
    "edit a user type",
    "delete from a user type",
    "delete a column",
    "delete columns",
    "delete a row",
    "delete a range",
    "delete a partition",
    "insert if not exists",
    "update if",
    "delete if exists",
    "batch with write times",
    "batch over two tables",
}


def script(seed: int, count: int) -> list[str]:
    return [step.cql for step in itertools.islice(steps(seed, NOW), count)]


def test_the_same_seed_gives_the_same_script() -> None:
    assert script(1, 300) == script(1, 300)
    assert script(1, 300) != script(2, 300)


@pytest.mark.parametrize("seed", range(1, 6))
def test_the_default_amount_has_every_kind(seed: int) -> None:
    assert {step.kind for step in itertools.islice(steps(seed, NOW), 300)} >= KINDS - {"delete if exists"}


def test_there_are_no_other_kinds() -> None:
    assert {step.kind for step in itertools.islice(steps(1, NOW), 5000)} == KINDS


def test_every_column_is_written() -> None:
    written = " ".join(script(1, 2000))
    for name in {**SCALARS, **NESTED}:
        assert re.search(rf"\b{name}\b", written), name


def test_nothing_that_the_sink_does_not_follow_yet() -> None:
    assert not re.search(r"\b(TTL|TRUNCATE|counter)\b", " ".join((*script(1, 2000), *STATEMENTS)))


def test_write_times_are_around_now() -> None:
    times = [int(time) for cql in script(1, 3000) for time in re.findall(r"USING TIMESTAMP (\d+)", cql)]
    assert min(times) >= NOW - 2 * 3_600_000_000
    assert NOW < max(times) <= NOW + 60_000_000


def test_statements_on_lists_choose_no_later_write_time_than_their_own() -> None:
    """A list that a later write time had emptied could not be edited by index."""
    for cql in script(1, 3000):
        if "shop.orders" in cql:
            assert all(int(time) <= NOW for time in re.findall(r"USING TIMESTAMP (\d+)", cql)), cql


def test_the_last_steps_write_a_row_that_the_script_never_touches() -> None:
    assert len(last_steps()) == 2
    assert not any(LAST_CUSTOMER in cql for cql in script(1, 3000))
