"""Templates of names in settings: what may stand in their braces."""

from __future__ import annotations

import pytest

from tailrace_common.sections.template import filled_for_table, require_template


@pytest.mark.parametrize("text", ["{keyspace}.{table}", "x-{table}", "{table}{{}}", "{keyspace:.3}_{table}"])
def test_a_template_of_known_names_stays_what_it_is(text: str) -> None:
    assert require_template(text, "keyspace", "table", needed="table") == text


@pytest.mark.parametrize(
    "text", ["{tables}", "{}", "{0}", "{table", "table}", "{table.__class__}", "{table[0]}", "{table!r}", "{table:02d}"]
)
def test_other_braces_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^may contain \{keyspace\} and \{table\}, and no other braces$"):
        require_template(text, "keyspace", "table")


def test_a_number_may_have_a_format() -> None:
    assert require_template("q{number:03}", "exchange", "number", needed="number") == "q{number:03}"


def test_a_name_that_tells_tables_apart_must_be_there() -> None:
    with pytest.raises(ValueError, match=r"^must contain \{table\}$"):
        require_template("{keyspace}{{table}}", "keyspace", "table", needed="table")
    with pytest.raises(ValueError, match=r"^may contain \{keyspace\}, and no other braces$"):
        require_template("{table}", "keyspace")


def test_what_is_filled_in_for_a_table_leaves_columns_of_the_key_as_they_are() -> None:
    filled = filled_for_table("{prefix}.{key.country}.{{x}}.{table}", prefix="p", table="t", keyspace="k")
    assert filled == "p.{key.country}.{x}.t"
