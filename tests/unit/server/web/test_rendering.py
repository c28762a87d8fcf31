"""Numbers as pages show them."""

from __future__ import annotations

import pytest

from tailrace_server.web.rendering import number_words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "–"),  # noqa: RUF001
        (0, "0"),
        (0.25, "0.2"),
        (9.5, "9.5"),
        (950, "950"),
        (9_999, "9,999"),
        (27_200, "27.2 k"),
        (3_400_000, "3.4 M"),
        (5e9, "5.0 G"),
    ],
)
def test_numbers_fit_a_column(value: float | None, words: str) -> None:
    assert number_words(value) == words
